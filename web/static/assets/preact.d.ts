// The types of preact.js.
import type { VNode } from "preact";

export { Component, Fragment, createContext, render } from "preact";
export { useCallback, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useState } from "preact/hooks";
export { createParser } from "eventsource-parser";
/** A template does not know what a component takes, so a function in it may be called with anything. */
export function html(strings: TemplateStringsArray, ...values: (((...given: any[]) => unknown) | {} | null | undefined)[]): VNode;
/** A value is T from the beginning; an element is there once it is rendered, so null stands for it until then. */
export function useRef<T>(initial: null): { current: T };
export function useRef<T>(initial: T): { current: T };
