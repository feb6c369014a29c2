const tones = [[880, 0], [660, 0.18], [880, 0.36]]; // Hz, and when, in s
const length = 0.16, loud = 0.25;

/**
 * Prepares the sound. A browser lets a page sound only after its user has pressed something in it.
 * @returns {{ring: () => boolean, close: () => void}} ring reports whether it is heard
 */
export function prepare() {
  const context = new AudioContext();
  const wake = () => context.state === "suspended" && context.resume().catch(() => {}); // it was closed before it could
  for (const press of ["pointerdown", "keydown"]) addEventListener(press, wake);
  wake();
  return {
    ring() {
      for (const [pitch, after] of context.state === "running" ? tones : []) play(context, pitch, context.currentTime + after);
      return context.state === "running";
    },
    close() {
      for (const press of ["pointerdown", "keydown"]) removeEventListener(press, wake);
      context.close();
    },
  };
}

function play(context, pitch, at) {
  const tone = context.createOscillator(), volume = context.createGain();
  tone.frequency.value = pitch;
  volume.gain.setValueAtTime(0, at);
  volume.gain.linearRampToValueAtTime(loud, at + 0.02);
  volume.gain.linearRampToValueAtTime(0, at + length);
  tone.connect(volume).connect(context.destination);
  tone.start(at);
  tone.stop(at + length);
}
