// The one module that ../static/assets/preact.js is made of.
import { h } from "preact";
import htm from "htm";

export { Component, Fragment, createContext, render } from "preact";
export { useCallback, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
export { createParser } from "eventsource-parser";
export const html = htm.bind(h);
