package handler

import (
	"context"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
)

// Jobs shows the scheduled jobs and their locks to operators.
type Jobs interface {
	Jobs(ctx context.Context) ([]cronjob.Job, error)
	HeldLocks(ctx context.Context) ([]cronjob.HeldLock, error)
	Runs(ctx context.Context, name string, page dispatch.Page) ([]cronjob.Run, string, error)
	RunNow(ctx context.Context, name, actor string) (cronjob.Run, error)
}

type jobView struct {
	Name     string `json:"name"`
	Schedule string `json:"schedule"`
	Enabled  bool   `json:"enabled"`
	TimeZone string `json:"time_zone"`
	OnLeader bool   `json:"on_leader"`
	// LeaseMS is null if the lock is not renewed.
	LeaseMS   *int64 `json:"lock_lease_ms"`
	AtMostMS  int64  `json:"lock_at_most_ms"`
	AtLeastMS int64  `json:"lock_at_least_ms"`
	// NextRunAt is null if the job's schedule has no more times.
	NextRunAt *timestamp `json:"next_run_at"`
	// Lock is null while the lock is free; LockProblem says why the holder is not known.
	Lock          *jobLockView `json:"lock"`
	LockProblem   *string      `json:"lock_problem"`
	Running       *runView     `json:"running"`
	Queued        *runView     `json:"queued"`
	LastRun       *runView     `json:"last_run"`
	LastSuccessAt *timestamp   `json:"last_success_at"`
	Blocked       *blockedView `json:"blocked"`
}

type jobLockView struct {
	Holder string `json:"holder"`
	// LeaseLeftMS is null if the lock lasts as long as its holder's session.
	LeaseLeftMS *int64 `json:"lease_left_ms"`
}

func viewHolder(h cronjob.Holder) jobLockView {
	return jobLockView{Holder: h.Owner, LeaseLeftMS: optionalMS(h.Remaining)}
}

// optionalMS is a duration in milliseconds, nil for none.
func optionalMS(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

type heldLockView struct {
	Name string `json:"name"`
	jobLockView
	Fence int64 `json:"fence"`
}

type blockedView struct {
	Since    timestamp `json:"since"`
	Instance string    `json:"instance"`
	Reason   string    `json:"reason"`
}

type runView struct {
	Job         string         `json:"job"`
	ScheduledAt timestamp      `json:"scheduled_at"`
	Status      cronjob.Status `json:"status"`
	Attempt     int            `json:"attempt"`
	Instance    *string        `json:"instance"`
	RequestedBy *string        `json:"requested_by"`
	BeganAt     *timestamp     `json:"began_at"`
	EndedAt     *timestamp     `json:"ended_at"`
	DurationMS  *float64       `json:"duration_ms"`
	Result      *string        `json:"result"`
	Error       *string        `json:"error"`
}

func viewJob(j cronjob.Job) jobView {
	v := jobView{
		Name: j.Name, Schedule: j.Schedule, Enabled: !j.Off, TimeZone: j.Zone.String(), OnLeader: j.OnLeader,
		LeaseMS: optionalMS(j.Lease), AtMostMS: j.AtMost.Milliseconds(), AtLeastMS: j.AtLeast.Milliseconds(),
		NextRunAt: optionalTimestamp(j.NextAt), LockProblem: nullable(j.LockProblem), LastSuccessAt: optionalTimestamp(j.SucceededAt),
	}
	if h := j.Holder; h != nil {
		lock := viewHolder(*h)
		v.Lock = &lock
	}
	for _, open := range j.Unfinished {
		run := viewRun(open)
		if open.Status == cronjob.Queued {
			v.Queued = &run
		} else {
			v.Running = &run
		}
	}
	if j.Last != nil {
		last := viewRun(*j.Last)
		v.LastRun = &last
	}
	if b := j.Blocked; b != nil {
		v.Blocked = &blockedView{Since: timestamp(b.Since), Instance: b.By, Reason: b.Reason}
	}
	return v
}

func viewRun(r cronjob.Run) runView {
	instance, _, _ := strings.Cut(r.Owner, "/")
	v := runView{
		Job: r.Job, ScheduledAt: timestamp(r.Slot), Status: r.Status, Attempt: r.Attempt, Instance: nullable(instance),
		RequestedBy: nullable(r.RequestedBy), BeganAt: optionalTimestamp(r.BeganAt), EndedAt: optionalTimestamp(r.EndedAt),
		Result: nullable(r.Result), Error: nullable(r.Error),
	}
	if r.BeganAt != nil && r.EndedAt != nil {
		took := float64(r.EndedAt.Sub(*r.BeganAt)) / float64(time.Millisecond)
		v.DurationMS = &took
	}
	return v
}

func (h *handler) jobs(c echo.Context, _ string) error {
	in := &query{c: c}
	page := in.page(maxLimit)
	return list(h, in, viewJob, func(ctx context.Context) ([]cronjob.Job, string, error) {
		all, err := h.Jobs.Jobs(ctx)
		jobs, next := cut(all, page.Limit, func(j cronjob.Job) bool { return j.Name > page.Cursor },
			func(j cronjob.Job) string { return j.Name })
		return jobs, next, err
	})
}

// locks answers with one page: there are few locks.
func (h *handler) locks(c echo.Context, _ string) error {
	view := func(l cronjob.HeldLock) heldLockView { return heldLockView{l.Name, viewHolder(l.Holder), l.Fence} }
	return list(h, &query{c: c}, view, func(ctx context.Context) ([]cronjob.HeldLock, string, error) {
		held, err := h.Jobs.HeldLocks(ctx)
		return held, "", err
	})
}

func (h *handler) jobRuns(c echo.Context, _ string) error {
	in := &query{c: c}
	page := in.page(maxLimit)
	return list(h, in, viewRun, func(ctx context.Context) ([]cronjob.Run, string, error) {
		return h.Jobs.Runs(ctx, c.Param("name"), page)
	})
}

// runJob queues a run and answers. The first instance that is free runs the job.
func (h *handler) runJob(c echo.Context, actor string) error {
	if err := readNothing(c); err != nil {
		return err
	}
	run, err := h.Jobs.RunNow(c.Request().Context(), c.Param("name"), actor)
	return respond(c, 202, viewRun(run), err)
}
