// The state of the driver's page and its updates: the driver, the offers, the jobs, and the time of the last reading.
import { Problem, Unreachable, now } from "../assets/api.js";
import { share } from "../assets/shared_stream.js";
import { hurry, insist, nap, pace } from "./again.js";
import { Taps } from "./taps.js";

const spacing = 300; // ms between readings at least
const poll = 30_000; // ms; the stream does not announce a suspension by the backoffice
const offersShown = 50;
const endedShown = 5;
const noticesKept = 30;
const active = ["ACCEPTED", "IN_PROGRESS"];
const endsKept = 200;
const ends = { "dispatch.taken": "taken", "dispatch.canceled": "canceled", "dispatch.expired": "expired" };
const kindOf = { CANCELED: "canceled", WON: null, WITHDRAWN: null }; // null: the job was not taken away

/**
 * The state is replaced, never modified:
 * me, offers, jobs: null until known; more, moreJobs: the list is incomplete; at: the time of the last full reading, and until then
 * of the first part that was read, in ms; link: "connecting", "live" or "cut"; trouble: the error of the last reading; ended: offers
 * that ended on the screen, with the reason; before: the terms of an offer's earlier round; deeds: the changes under way, by their
 * subject; notices: the jobs that were taken away from the driver, until the driver dismisses them.
 */
export class Work {
  #session;
  #listeners = new Set();
  #stopped = new AbortController();
  #wanted = new Set();
  #reading = false;
  #offersTag = null;
  #reported = new Set();
  #shown = new Set();
  #heard = new Map(); // how a dispatch's latest round ended: an earlier list may arrive later, and a later list earlier
  #unfollow = () => {};
  taps;

  constructor(session) {
    this.#session = session;
    const known = session.kept.known ?? { me: null, offers: null, jobs: null, at: null };
    this.state = { notices: [], ...known, more: false, moreJobs: false, link: "connecting", trouble: null, ended: [], before: new Map(), deeds: {} };
    this.taps = new Taps(session, (tap) => this.#tapMoved(tap));
  }

  start() {
    this.#follow();
    if (this.state.me) this.taps.resume(this.state.me.id);
    const cut = () => this.#set({ link: "cut" });
    const looked = () => document.visibilityState === "visible" && this.read();
    const timer = setInterval(looked, poll);
    document.addEventListener("visibilitychange", looked);
    addEventListener("online", hurry);
    addEventListener("offline", cut);
    this.#stopped.signal.addEventListener("abort", () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", looked);
      removeEventListener("online", hurry);
      removeEventListener("offline", cut);
      this.#unfollow();
      this.taps.stop();
    });
    this.read();
  }

  stop() {
    this.#stopped.abort();
  }

  /** Calls listener after each change. @returns {() => void} stops the calls */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #set(part) {
    this.state = { ...this.state, ...part };
    for (const listener of this.#listeners) listener();
  }

  #call(method, path, options) {
    return this.#session.call(method, path, { ...options, signal: this.#stopped.signal });
  }

  #follow() {
    const { token } = this.#session;
    this.#unfollow = share("/v1/stream", this.#session.kept.id, {
      token,
      onEvent: (type, data) => this.#hear(type, data),
      onResync: () => this.read(),
      onState: (state) => this.#linked(state, token),
    });
  }

  async #linked(state, token) {
    if (state === "live") {
      this.#set({ link: "live" });
      hurry();
      this.read();
    } else if (this.state.link === "live" || state === "refused") {
      this.#set({ link: "cut" });
    }
    if (state !== "refused") return;
    const { signal } = this.#stopped;
    try {
      if (await insist(() => this.#session.renew(token), { signal })) this.#follow();
    } catch (err) {
      if (!signal.aborted) throw err;
    }
  }

  #hear(type, { dispatch_id: id, round }) {
    const job = this.state.jobs?.some((j) => j.id === id && active.includes(j.status));
    if (ends[type] && !job) {
      this.#heard.delete(id);
      this.#heard.set(id, { round, why: ends[type] });
      if (this.#heard.size > endsKept) this.#heard.delete(this.#heard.keys().next().value);
      const over = (this.state.offers ?? []).filter((o) => this.#endOf(o));
      this.#set({ offers: this.state.offers?.filter((o) => !over.includes(o)) ?? null, ended: this.#andEnded(over) });
    }
    this.read();
  }

  #endOf({ id, round }) {
    const heard = this.#heard.get(id);
    return heard?.round === round ? heard.why : undefined;
  }

  dismiss(notice) {
    this.#set({ notices: this.state.notices.filter((n) => n !== notice) });
    this.#remember();
  }

  /** Schedules another reading. */
  read() {
    for (const part of ["me", "offers", "jobs"]) this.#wanted.add(part);
    if (!this.#reading) this.#readAll();
  }

  async #readAll() {
    const { signal } = this.#stopped;
    const parts = { me: this.#readMe, offers: this.#readOffers, jobs: this.#readJobs };
    this.#reading = true;
    try {
      for (let failures = 0; this.#wanted.size > 0;) {
        const wanted = [...this.#wanted];
        this.#wanted.clear();
        try {
          const asked = performance.now(), at = now();
          await Promise.all(wanted.map(async (part) => {
            await parts[part].call(this, asked);
            if (!this.state.at) this.#set({ at }); // what is shown has a time, also if another part is not read
          }));
          failures = 0;
          this.#set({ trouble: null, at: now() });
          this.#remember();
          await nap(spacing, signal);
        } catch (err) {
          signal.throwIfAborted();
          if (!(err instanceof Problem || err instanceof Unreachable)) throw err;
          if (err.status === 401) return;
          wanted.forEach((part) => this.#wanted.add(part));
          const { link } = this.state;
          this.#set({ trouble: err, link: link === "connecting" && err instanceof Unreachable ? "cut" : link });
          await nap(pace(failures++), signal);
        }
      }
    } catch (err) {
      if (!signal.aborted) throw err;
    } finally {
      this.#reading = false;
    }
  }

  #remember() {
    const { me, offers, jobs, at, notices } = this.state;
    this.#session.keep({ known: { me, offers, jobs, at, notices } });
  }

  async #readMe() {
    const first = this.state.me?.id;
    const { data } = await this.#call("GET", "/v1/me");
    this.#set({ me: data });
    if (data.id !== first) this.taps.resume(data.id);
  }

  async #readOffers(asked) {
    const { data, status, etag } = await this.#call("GET", `/v1/me/offers?limit=${offersShown}`, { etag: this.#offersTag ?? undefined });
    if (status === 304) {
      this.taps.reconcile({ offers: this.state.offers }, asked);
      return;
    }
    this.#offersTag = etag;
    const offers = data.items.filter((o) => !this.#endOf(o));
    const gone = (this.state.offers ?? []).filter((o) => !offers.some((n) => n.id === o.id));
    const before = new Map();
    for (const offer of offers) {
      const last = this.state.offers?.find((o) => o.id === offer.id);
      if (last && last.round < offer.round) before.set(offer.id, last);
      else if (this.state.before.has(offer.id)) before.set(offer.id, this.state.before.get(offer.id));
    }
    this.taps.reconcile({ offers }, asked);
    this.#set({
      offers, before, more: Boolean(data.next_cursor),
      ended: this.#andEnded(gone).filter((e) => !offers.some((o) => o.id === e.dispatch.id)),
    });
  }

  // andEnded keeps the offers that the driver has seen. It keeps none off duty, and none with a tap, which shows the end.
  #andEnded(offers) {
    if (!this.state.me?.on_duty) return [];
    const now = offers.filter((o) => this.#shown.has(o.id) && !this.taps.all.has(o.id)).map((dispatch) => ({ dispatch }));
    return [...this.state.ended, ...now].slice(-endedShown).map(({ dispatch }) => ({ dispatch, why: this.#endOf(dispatch) ?? "gone" }));
  }

  async #readJobs(asked) {
    const lists = await Promise.all(["IN_PROGRESS", "ACCEPTED", "COMPLETED"].map(async (status) => {
      const most = status === "COMPLETED" ? 20 : 50;
      return (await this.#call("GET", `/v1/me/dispatches?status=${status}&limit=${most}`)).data;
    }));
    // A job whose status changes meanwhile may be in two of the lists or in none.
    const found = new Map(lists.flatMap((l) => l.items).sort((a, b) => a.version - b.version).map((j) => [j.id, j]));
    const missing = () => (this.state.jobs ?? []).filter((j) => !found.has(j.id) && active.includes(j.status));
    const newer = ({ id }) => this.taps.all.get(id)?.answer?.kind === "won" && this.taps.all.get(id).at >= asked;
    const notices = [];
    for (const job of missing().filter((j) => !newer(j))) {
      const { kind, dispatch } = await this.#whereTo(job);
      if (kind) notices.push({ kind, dispatch: job });
      else if (dispatch) found.set(job.id, dispatch);
    }
    for (const job of missing().filter(newer)) found.set(job.id, job);
    const jobs = [...found.values()];
    this.taps.reconcile({ jobs }, asked);
    this.#set({
      jobs, moreJobs: lists.some((l) => l.next_cursor),
      ended: this.state.ended.filter((e) => !found.has(e.dispatch.id)),
      notices: [...this.state.notices, ...notices].slice(-noticesKept),
    });
  }

  // whereTo finds what happened to a job that the driver had: kind says how it was taken away. If it is still the driver's,
  // dispatch is the job.
  async #whereTo({ id, round }) {
    try {
      const { data: receipt } = await this.#call("GET", `/v1/me/dispatches/${id}/claim`);
      const kind = receipt.round === round && receipt.outcome in kindOf ? kindOf[receipt.outcome] : "unassigned";
      if (kind || receipt.outcome === "WITHDRAWN") return { kind };
      return { dispatch: (await this.#call("GET", `/v1/dispatches/${id}`)).data };
    } catch (err) {
      if (err instanceof Problem && err.status === 404) return { kind: "unassigned" };
      throw err;
    }
  }

  #tapMoved(tap) {
    const { jobs } = this.state;
    const { id } = tap.dispatch;
    if (tap.answer?.kind === "won" && !jobs?.some((j) => j.id === id && j.round === tap.round)) {
      // It is a job from now on, even if the list can't be read: the driver can start it, and sees a notice if it is lost.
      const job = { ...tap.dispatch, status: active.includes(tap.dispatch.status) ? tap.dispatch.status : "ACCEPTED" };
      this.#set({ jobs: [...(jobs ?? []).filter((j) => j.id !== id), job] });
      this.#remember();
    } else {
      this.#set({});
    }
    if (tap.state === "done" && tap.answer.kind !== "early") this.read();
  }

  accept(dispatch) {
    this.taps.tap(this.state.me.id, dispatch);
  }

  /** Removes the answer to a tap, or an ended offer. */
  forget(id) {
    this.taps.forget(id);
    this.#set({ ended: this.state.ended.filter((e) => e.dispatch.id !== id) });
  }

  /** Reports to the service that an offer was on the screen, once for each round. */
  async seen({ id, round, offer_status: status }) {
    const key = `${id} ${round}`;
    this.#shown.add(id);
    if (this.#reported.has(key) || !["PENDING", "SENT"].includes(status)) return;
    this.#reported.add(key);
    const { signal } = this.#stopped;
    try {
      await insist(() => this.#call("POST", `/v1/dispatches/${id}/seen`, { body: { round } }), { signal });
      const noted = (o) => (o.id === id && o.round === round && o.offer_status === status ? { ...o, offer_status: "SEEN" } : o);
      this.#set({ offers: this.state.offers.map(noted) });
      this.#remember(); // or the page would report it again after a reload
    } catch (err) {
      if (!signal.aborted && !(err instanceof Problem)) throw err; // the offer has ended
    }
  }

  setDuty(onDuty) {
    return this.#do("duty", { wanted: onDuty }, async () => {
      const { data } = await this.#call("PUT", "/v1/me/duty", { body: { on_duty: onDuty } });
      this.#set({ me: data, ...(onDuty ? {} : { offers: [], ended: [] }) });
      this.#offersTag = null;
    });
  }

  /** @param {"decline"|"withdraw"|"start"|"complete"} what */
  change(what, { id, round }, reason) {
    return this.#do(id, { what }, async () => {
      await this.#call("POST", `/v1/dispatches/${id}/${what}`, { body: { round, reason_code: reason } });
      this.taps.forget(id);
      if (what === "withdraw") this.#set({ jobs: this.state.jobs.filter((j) => j.id !== id) }); // the driver gave it back
    });
  }

  // do repeats act until its outcome is known, once at a time for each subject.
  async #do(about, deed, act) {
    if (this.state.deeds[about] && !this.state.deeds[about].error) return;
    const say = (part) => this.#set({ deeds: { ...this.state.deeds, [about]: part } });
    const { signal } = this.#stopped;
    say(deed);
    try {
      await insist(act, { signal, onUnknown: () => say({ ...deed, unknown: true }) });
      say(undefined);
    } catch (error) {
      if (signal.aborted) return;
      say({ ...deed, error });
      if (!(error instanceof Problem)) throw error;
    }
    this.read();
  }
}
