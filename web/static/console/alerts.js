import { html, useEffect, useRef, useState } from "../assets/preact.js";
import { useLanguage } from "../assets/language.js";
import { useLive } from "./reading.js";

const lastLook = "firsttap.alerts.at"; // where the time of the last look is stored
const place = "firsttap.alerts"; // each browser has its own choice, and alerts are off without one

const possible = () => "Notification" in window && "locks" in navigator; // a browser has both only over TLS, or from this machine

function chosen() {
  try {
    return localStorage.getItem(place) === "on";
  } catch {
    return false;
  }
}

/** @param {boolean} on */
function turn(on) {
  try {
    localStorage.removeItem(lastLook); // what ended while they were off is not alerted to
    on ? localStorage.setItem(place, "on") : localStorage.removeItem(place);
  } catch {
    // The browser stores nothing, so the choice ends with the page.
  }
}

/**
 * The choice, also when another tab makes it, and whether the browser allows notifications, also when its user changes that.
 * @returns {[boolean, (on: boolean) => void]} whether alerts are on
 */
function useChoice() {
  const [choice, choose] = useState(chosen);
  const [allowed, allow] = useState(false);
  useEffect(() => {
    /** @type {PermissionStatus|undefined} */
    let permission;
    let here = true;
    const stored = (/** @type {StorageEvent} */ e) => e.key === place && choose(chosen());
    const changed = () => allow(permission?.state === "granted");
    addEventListener("storage", stored);
    if (possible()) {
      navigator.permissions.query({ name: "notifications" }).then((p) => {
        if (!here) return;
        permission = p;
        p.addEventListener("change", changed);
        changed();
      });
    }
    return () => {
      here = false;
      removeEventListener("storage", stored);
      permission?.removeEventListener("change", changed);
    };
  }, []);
  return [choice && allowed, (on) => {
    turn(on);
    choose(on);
    if (on) allow(true); // by the answer to the question: the event comes later
  }];
}

/** Turns on and off the sound and the notification for dispatches that nobody sees or takes. What they take is loaded when they are on. */
export function Alerts() {
  const language = useLanguage();
  const { t } = language;
  const [on, set] = useChoice();
  const [trouble, setTrouble] = useState(/** @type {"notLoaded"|"impossible"|"blocked"|null} */ (null));
  const speaks = useRef(language), watcher = useRef(/** @type {ReturnType<typeof import("./alerts_watch.js").watch>|null} */ (null)), pressed = useRef(false);
  speaks.current = language;
  useLive({
    onEvent: (_, event) => watcher.current?.onEvent(event), onResync: () => watcher.current?.onResync(), onHeard: () => watcher.current?.onHeard(),
  });
  useEffect(() => {
    if (!on) return undefined;
    let here = true;
    import("./alerts_watch.js").then(({ watch }) => {
      if (!here) return;
      watcher.current = watch(() => speaks.current, lastLook);
      if (pressed.current) watcher.current.ring(); // so that the user hears what it will be
    }, () => here && setTrouble("notLoaded"));
    return () => {
      here = false;
      watcher.current?.close();
      watcher.current = null;
    };
  }, [on]);
  const press = async () => {
    setTrouble(null);
    if (on) {
      set(false);
      return;
    }
    if (!possible()) {
      setTrouble("impossible");
      return;
    }
    if (await Notification.requestPermission() !== "granted") {
      setTrouble("blocked");
      return;
    }
    pressed.current = true;
    set(true);
  };
  return html`<button type="button" class="quiet" title=${t.alerts.more} onClick=${press}>${on ? t.alerts.on : t.alerts.off}</button>
    <span role="status" class=${trouble ? "bad" : "hidden"}>${trouble && t.alerts[trouble]}</span>`;
}
