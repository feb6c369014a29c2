// A tap must press the button that the driver meant: a list that moves, because a card above it appeared or left, puts another
// button under a finger that is on its way.
import { useLayoutEffect, useRef, useState } from "../assets/preact.js";

const settling = 400; // ms; no driver reads an offer faster

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
 * Reports whether a button has been at its place for moment ms. A reader's scroll moves it in the window, but not on the page.
 * The browser's own scrolling moves it on the page, but not in the window. The button has moved if both changed.
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
  useLayoutEffect(() => { last.current = null; }, [moment]); // the reader sees another button
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
