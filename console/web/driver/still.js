// What is tapped is what was meant: a list that moves, because something came or went above, puts another button under a finger
// that is on its way.
import { useLayoutEffect, useRef, useState } from "../assets/preact.js";

const settling = 400; // ms; nobody reads an offer faster

const watched = new Set();
const observer = new ResizeObserver(() => watched.forEach((look) => look()));

function watch(look) {
  if (watched.size === 0) observer.observe(document.body);
  watched.add(look);
  return () => {
    watched.delete(look);
    if (watched.size === 0) observer.disconnect();
  };
}

/**
 * Whether a button has been at its place for a moment, of so many ms. Who scrolls moves it in the window, but not on the page, and what the
 * browser scrolls for them moves it on the page, but not in the window: it has moved when both changed.
 */
export function useStill(element, moment = settling) {
  const [still, setStill] = useState(false);
  const last = useRef(null);
  const timer = useRef(0);
  const wait = useRef(moment);
  wait.current = moment;
  const look = () => {
    const { left, top } = element.current.getBoundingClientRect();
    const place = { left, top, down: top + scrollY };
    const before = last.current;
    last.current = place;
    if (before && place.left === before.left && (Math.abs(place.top - before.top) < 8 || Math.abs(place.down - before.down) < 8)) return;
    clearTimeout(timer.current);
    timer.current = setTimeout(setStill, wait.current, true);
    setStill(false);
  };
  useLayoutEffect(() => { last.current = null; }, [moment]); // another button, to who looks at it
  useLayoutEffect(look);
  useLayoutEffect(() => {
    const unwatch = watch(look);
    return () => {
      unwatch();
      clearTimeout(timer.current);
    };
  }, []);
  return still;
}
