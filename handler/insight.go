package handler

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

// offerStore reads what became of the offers of dispatches, and records that a driver has seen one.
type offerStore interface {
	MarkSeen(ctx context.Context, id dispatch.ID, round int, driver dispatch.DriverID) error
	Funnel(ctx context.Context, id dispatch.ID) (rounds []outbox.Funnel, forgotten int, err error)
	Attempts(ctx context.Context, id dispatch.ID, round int, page dispatch.Page) ([]dispatch.AttemptRecord, string, error)
	Offers(ctx context.Context, id dispatch.ID, round int, page dispatch.Page) ([]dispatch.Offered, string, error)
}

// boardStore counts dispatches, drivers and taps.
type boardStore interface {
	TapStatistics(ctx context.Context, driver dispatch.DriverID) (dispatch.TapStatistics, error)
	Board(ctx context.Context, region string) (dispatch.Board, error)
	Supply(ctx context.Context, region string, hours int) ([]dispatch.Supply, error)
}

type attemptView struct {
	ID         dispatch.AttemptID     `json:"id"`
	Round      int                    `json:"round"`
	DriverID   dispatch.DriverID      `json:"driver_id"`
	Result     dispatch.AttemptResult `json:"result"`
	At         timestamp              `json:"at"`
	LastAt     timestamp              `json:"last_at"`
	Count      int                    `json:"count"`
	AfterUS    int64                  `json:"after_us"`
	Rank       *int                   `json:"rank"`
	ReactionMS *float64               `json:"reaction_ms"`
	Instance   *string                `json:"instance"`
	AppVersion *string                `json:"app_version"`
}

func viewAttempt(a dispatch.AttemptRecord) attemptView {
	return attemptView{
		ID: a.ID, Round: a.Round, DriverID: a.Driver, Result: a.Result, At: timestamp(a.At), LastAt: timestamp(a.LastAt), Count: a.Count,
		AfterUS: a.After.Microseconds(),
		Rank:    nullableRank(a.Rank), ReactionMS: milliseconds(a.Reaction), Instance: nullable(a.Instance),
		AppVersion: nullable(a.AppVersion),
	}
}

func (h *handler) attempts(c echo.Context, _ string, id dispatch.ID) error {
	return listByRound(h, c, id, viewAttempt, h.Stores.Offers.Attempts)
}

type contactView struct {
	DriverID      dispatch.DriverID    `json:"driver_id"`
	Round         int                  `json:"round"`
	OfferStatus   dispatch.OfferStatus `json:"offer_status"`
	ToldAt        *timestamp           `json:"told_at"`
	SentAt        *timestamp           `json:"sent_at"`
	SeenAt        *timestamp           `json:"seen_at"`
	DeclinedAt    *timestamp           `json:"declined_at"`
	DeclineReason *string              `json:"decline_reason"`
	TappedAt      *timestamp           `json:"tapped_at"`
}

func viewContact(o dispatch.Offered) contactView {
	k := o.Contact
	return contactView{
		DriverID: k.Driver, Round: k.Round, OfferStatus: o.OfferStatus(), ToldAt: optionalTimestamp(k.NotifiedAt),
		SentAt: optionalTimestamp(k.SentAt), SeenAt: optionalTimestamp(k.SeenAt), DeclinedAt: optionalTimestamp(k.DeclinedAt),
		DeclineReason: nullable(k.DeclineReason), TappedAt: optionalTimestamp(k.TappedAt),
	}
}

func (h *handler) dispatchOffers(c echo.Context, _ string, id dispatch.ID) error {
	return listByRound(h, c, id, viewContact, h.Stores.Offers.Offers)
}

// listByRound answers with a page of a dispatch's records, of the round in the query or of all rounds.
func listByRound[D, V any](h *handler, c echo.Context, id dispatch.ID, view func(D) V,
	read func(context.Context, dispatch.ID, int, dispatch.Page) ([]D, string, error),
) error {
	in := &query{c: c}
	page, round := in.page(maxLimit), in.number("round", 0, maxRound)
	return list(h, in, view, func(ctx context.Context) ([]D, string, error) { return read(ctx, id, round, page) })
}

type signalsView struct {
	TapsSince       timestamp `json:"taps_since"`
	Taps            int       `json:"taps"`
	Wins            int       `json:"wins"`
	Withdrawn       int       `json:"withdrawn"`
	WithdrawRate    *float64  `json:"withdraw_rate"`
	FastestReaction *float64  `json:"fastest_reaction_ms"`
	MedianReaction  *float64  `json:"median_reaction_ms"`
	Under300MS      int       `json:"under_300_ms"`
	WithdrawnOfLate int       `json:"withdrawn_24h"`
	HopelessOfLate  int       `json:"hopeless_taps_24h"`
}

// superhuman is too short a time for a person to read an offer.
const superhuman = 300 * time.Millisecond

func (h *handler) signals(c echo.Context, _ string, id dispatch.DriverID) error {
	s, err := h.Stores.Board.TapStatistics(c.Request().Context(), id)
	if err != nil {
		return err
	}
	v := signalsView{
		TapsSince: timestamp(s.Since), Taps: s.Taps, Wins: s.Wins, Withdrawn: s.Withdrawn,
		MedianReaction: milliseconds(s.Median()), Under300MS: s.CountFaster(superhuman),
		WithdrawnOfLate: s.RecentWithdrawals, HopelessOfLate: s.RecentUnwinnable,
	}
	if s.Wins > 0 {
		rate := float64(s.Withdrawn) / float64(s.Wins)
		v.WithdrawRate = &rate
	}
	if len(s.Reactions) > 0 {
		v.FastestReaction = milliseconds(&s.Reactions[0])
	}
	return writeJSON(c, 200, v)
}

type boardView struct {
	Counts     map[dispatch.Status]int `json:"counts"`
	Since      timestamp               `json:"since"`
	Unseen     int                     `json:"unseen"`
	UnseenIDs  []dispatch.ID           `json:"unseen_ids"`
	Regions    []boardRegion           `json:"regions"`
	ServerTime timestamp               `json:"server_time"`
}

type boardRegion struct {
	Region string `json:"region"`
	OnDuty int    `json:"on_duty"`
	Open   int    `json:"open"`
}

func (h *handler) board(c echo.Context, _ string) error {
	in := &query{c: c}
	region := in.text("region")
	if in.err != nil {
		return in.err
	}
	b, err := h.Stores.Board.Board(c.Request().Context(), region)
	if err != nil {
		return err
	}
	v := boardView{
		Counts: b.Counts, Since: timestamp(b.Since), Unseen: b.Unseen, UnseenIDs: b.UnseenIDs,
		Regions: make([]boardRegion, len(b.Regions)), ServerTime: timestamp(b.Now),
	}
	for i, r := range b.Regions {
		v.Regions[i] = boardRegion{r.Region, r.OnDuty, r.Open}
	}
	return writeJSON(c, 200, v)
}

// supplyView has a null region for the total, which is not the sum: a driver can be in several regions.
type supplyView struct {
	At     timestamp `json:"at"`
	Region *string   `json:"region"`
	OnDuty int       `json:"on_duty"`
	Open   int       `json:"open"`
}

const (
	defaultHours = 24
	maxHours     = 7 * 24
)

// supply answers with one page.
func (h *handler) supply(c echo.Context, _ string) error {
	in := &query{c: c}
	hours, region := in.number("hours", defaultHours, maxHours), in.text("region")
	view := func(s dispatch.Supply) supplyView {
		return supplyView{timestamp(s.At), nullable(s.Region), s.OnDuty, s.Open}
	}
	return list(h, in, view, func(ctx context.Context) ([]dispatch.Supply, string, error) {
		counted, err := h.Stores.Board.Supply(ctx, region, hours)
		return counted, "", err
	})
}
