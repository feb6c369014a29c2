import { useLayoutEffect, useRef } from "../assets/preact.js";

const patience = 5000; // ms: a card that only a search finds comes after the others

// Where the reader left the board: its address, the opened card, its column, and the column's cards after and before it, the nearest
// first. The board is not rendered meanwhile.
let left = null;

const idOf = (card) => card.querySelector("a").hash;

/** Notices which card of the board is opened. @param {MouseEvent} e a click on the board; Enter is one too */
export function leaveBoard(e) {
  const card = e.target.closest("li");
  if (!card || e.ctrlKey || e.metaKey || e.shiftKey) return; // those open another tab or window
  const ids = [...card.parentElement.children].map(idOf);
  const at = ids.indexOf(idOf(card));
  left = { address: location.hash, id: ids[at], near: [...ids.slice(at + 1), ...ids.slice(0, at).reverse()], status: card.closest("section").dataset.status };
}

/** Returns the address of the board as the reader left it, with its filters. */
export const boardAddress = () => left?.address ?? "#/board";

/**
 * Once the board has its cards again, focuses the card of the dispatch that the reader comes back from, in whichever column it is now.
 * If it is gone, the focus goes to the next card of its former column, or the one before, or the column. It stays where the reader has
 * put it meanwhile.
 * @param {boolean} loaded
 * @returns {{current: HTMLElement|null}} the board's element
 */
export function useReturn(loaded) {
  const board = useRef(null);
  const back = useRef(left);
  useLayoutEffect(() => {
    const b = back.current;
    if (!b || !loaded) return;
    left = null;
    b.until ??= Date.now() + patience;
    const own = board.current.querySelector(`a[href="${CSS.escape(b.id)}"]`);
    const active = document.activeElement;
    const moved = active !== document.body && active.id !== "main" && active !== b.placed;
    if (own || moved || Date.now() > b.until) back.current = null;
    if (moved) return;
    b.placed = own ?? near(board.current, b);
    if (b.placed !== active) b.placed.focus();
  });
  return board;
}

function near(board, { near: ids, status }) {
  const column = board.querySelector(`[data-status=${status}]`);
  const cards = new Map([...column.querySelectorAll("li")].map((card) => [idOf(card), card.querySelector("a")]));
  return cards.get(ids.find((id) => cards.has(id))) ?? column;
}
