package handler

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// viewOffer returns a dispatch as it is offered to one driver.
func viewOffer(o dispatch.Offered) dispatchView {
	v := viewDispatch(o.Dispatch)
	v.OfferStatus = o.OfferStatus()
	return v
}

// viewClaimed returns a dispatch as the driver who claimed it sees it.
func viewClaimed(d dispatch.Dispatch) dispatchView {
	o := dispatch.Offered{Dispatch: d, Contact: dispatch.OfferHistory{Round: d.Round}}
	if d.Claim != nil {
		o.Contact.Driver = d.Claim.Driver
	}
	return viewOffer(o)
}

// offers lists a driver's offers. It answers 304 if the client has the current list: the ETag covers all but server_time.
func (h *handler) offers(c echo.Context, me dispatch.DriverID) error {
	in := &query{c: c}
	p := in.page(maxDriverLimit)
	if in.err != nil {
		return in.err
	}
	items, next, err := h.DriverService.Offers(c.Request().Context(), me, p)
	if err != nil {
		return unauthenticatedIfGone(err)
	}
	list := viewList(items, next, h.Now(), viewOffer)
	etag, err := offersETag(me, list)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("ETag", etag)
	header.Set(echo.HeaderCacheControl, "private, no-cache") // may be cached, must be revalidated
	header.Add(echo.HeaderVary, echo.HeaderAuthorization)
	if matchesETag(c.Request().Header.Values("If-None-Match"), etag) {
		return c.NoContent(304)
	}
	return writeJSON(c, 200, list)
}

// offersETag returns a weak ETag of the list without server_time, and of the driver, so that drivers do not share ETags.
func offersETag(me dispatch.DriverID, list listView[dispatchView]) (string, error) {
	list.ServerTime = timestamp{}
	body, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(me), body...))
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`, nil
}

func (h *handler) getOffer(c echo.Context, me dispatch.DriverID, id dispatch.ID) error {
	o, err := h.DriverService.Offer(c.Request().Context(), me, id)
	return respond(c, 200, viewOffer(o), unauthenticatedIfGone(err))
}

// seen records that the app has shown an offer. It accepts earlier rounds: the phone may have been offline when it showed the
// offer.
func (h *handler) seen(c echo.Context, me dispatch.DriverID, id dispatch.ID) error {
	req, err := read[roundRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	o, err := h.DriverService.Offer(c.Request().Context(), me, id)
	if err != nil {
		return unauthenticatedIfGone(err)
	}
	round := cmp.Or(roundOf(req.Round), o.Round)
	if round > o.Round {
		return dispatch.ErrOfferStale
	}
	return done(c, 204, h.Stores.Offers.MarkSeen(c.Request().Context(), id, round, me))
}

func (h *handler) decline(c echo.Context, me dispatch.DriverID, id dispatch.ID) error {
	req, err := read[roundReasonRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	err = h.DriverService.Decline(c.Request().Context(), me, id, roundOf(req.Round), req.ReasonCode)
	return done(c, 204, unauthenticatedIfGone(err))
}

// receiptView has null for a rank and a behind_ms that are not known.
type receiptView struct {
	Outcome   dispatch.Outcome `json:"outcome"`
	Round     int              `json:"round"`
	Rank      *int             `json:"rank"`
	BehindMS  *float64         `json:"behind_ms"`
	DecidedAt *timestamp       `json:"decided_at"`
}

func (h *handler) receipt(c echo.Context, me dispatch.DriverID, id dispatch.ID) error {
	r, err := h.DriverService.Receipt(c.Request().Context(), me, id)
	return respond(c, 200, receiptView{
		Outcome: r.Outcome, Round: r.Round, Rank: nullableRank(r.Rank), BehindMS: milliseconds(r.Behind),
		DecidedAt: optionalTimestamp(r.DecidedAt),
	}, unauthenticatedIfGone(err))
}
