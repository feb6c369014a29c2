package handler

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// viewOffer is a dispatch as one driver is offered it.
func viewOffer(o dispatch.Offered) dispatchView {
	v := viewDispatch(o.Dispatch)
	v.OfferStatus = o.OfferStatus()
	return v
}

// viewHeld is a dispatch as who has it sees it.
func viewHeld(d dispatch.Dispatch) dispatchView {
	o := dispatch.Offered{Dispatch: d, Contact: dispatch.Contact{Round: d.Round}}
	if d.Claim != nil {
		o.Contact.Driver = d.Claim.Driver
	}
	return viewOffer(o)
}

// offers answers 304 to who has the list as it is. Its ETag is of everything in it but server_time.
func (h *handler) offers(c echo.Context, me dispatch.DriverID) error {
	p, err := page(c)
	if err != nil {
		return err
	}
	items, next, err := h.Work.Offers(c.Request().Context(), me, p)
	if err != nil {
		return tokenOf(err)
	}
	list := viewList(items, next, h.Now(), viewOffer)
	etag, err := offersETag(me, list)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("ETag", etag)
	header.Set(echo.HeaderCacheControl, "private, no-cache") // kept, and asked for each time
	header.Add(echo.HeaderVary, echo.HeaderAuthorization)
	if matches(c.Request().Header.Values("If-None-Match"), etag) {
		return c.NoContent(304)
	}
	return writeJSON(c, 200, list)
}

// offersETag is weak: server_time is not in it. The driver is, as what one of them has says nothing to another.
func offersETag(me dispatch.DriverID, list listView[dispatchView]) (string, error) {
	list.ServerTime = timestamp{}
	body, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(me), body...))
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`, nil
}

// matches reports whether If-None-Match names the ETag, or with * any. No ETag of ours has a comma in it.
func matches(headers []string, etag string) bool {
	for _, header := range headers {
		for candidate := range strings.SplitSeq(header, ",") {
			candidate = strings.TrimSpace(candidate)
			if candidate == "*" || strings.TrimPrefix(candidate, "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}

type roundReasonRequest struct {
	ReasonCode string `json:"reason_code" validate:"max=64,tidy"`
	Round      *int   `json:"round" validate:"omitempty,min=1,max=2147483647"`
}

// round is 0 for whichever is current.
func (r *roundReasonRequest) round() int {
	if r.Round == nil {
		return 0
	}
	return *r.Round
}

func (h *handler) decline(c echo.Context, me dispatch.DriverID) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	req, err := read[roundReasonRequest](c, maxBody)
	if err != nil {
		return err
	}
	if err := h.Work.Decline(c.Request().Context(), me, id, req.round(), req.ReasonCode); err != nil {
		return tokenOf(err)
	}
	return c.NoContent(204)
}

// receiptView leaves rank and behind_ms null where they are not known.
type receiptView struct {
	Outcome   dispatch.Outcome `json:"outcome"`
	Round     int              `json:"round"`
	Rank      *int             `json:"rank"`
	BehindMS  *float64         `json:"behind_ms"`
	DecidedAt *timestamp       `json:"decided_at"`
}

func (h *handler) receipt(c echo.Context, me dispatch.DriverID) error {
	return h.onDispatch(c, func(ctx context.Context, id dispatch.ID) (any, error) {
		r, err := h.Work.Receipt(ctx, me, id)
		return receiptView{
			Outcome: r.Outcome, Round: r.Round, Rank: ranked(r.Rank), BehindMS: milliseconds(r.Behind),
			DecidedAt: optionalTimestamp(r.DecidedAt),
		}, err
	})
}

// ranked is null for nobody's rank.
func ranked(rank int) *int {
	if rank == 0 {
		return nil
	}
	return &rank
}

// milliseconds have three decimals.
func milliseconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	ms := float64(d.Microseconds()) / 1000
	return &ms
}

// fromApp is the request's context, with what the app calls itself.
func fromApp(c echo.Context) context.Context {
	ctx := c.Request().Context()
	caller := dispatch.CallerOf(ctx)
	caller.App = appVersion(c)
	return dispatch.WithCaller(ctx, caller)
}

const maxAppVersion = 64

// appVersion is what the app calls itself. What is not to be written down is left out: nobody loses a race for it.
func appVersion(c echo.Context) string {
	v := c.Request().Header.Get("X-App-Version")
	if len(v) > maxAppVersion || strings.TrimSpace(v) != v {
		return ""
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return ""
		}
	}
	return v
}
