package handler

import (
	"context"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// tokenStore adds drivers in bulk, with or without tokens, and writes to the audit trail that a token was issued.
type tokenStore interface {
	AddDrivers(ctx context.Context, drivers []dispatch.Driver, tokens bool) error
	RecordTokenIssued(ctx context.Context, id dispatch.DriverID) (generation int, err error)
}

type addDriversRequest struct {
	Drivers     []driverRequest `json:"drivers"      validate:"required,min=1,max=1000,dive"`
	IssueTokens bool            `json:"issue_tokens"`
}

func (h *handler) addDrivers(c echo.Context, _ string) error {
	req, err := read[addDriversRequest](c, maxBulkBody)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	drivers := make([]dispatch.Driver, len(req.Drivers))
	views := make([]driverView, len(req.Drivers))
	for i := range req.Drivers {
		drivers[i] = req.Drivers[i].driver(ctx, h.Now(), i)
		views[i] = viewDriver(drivers[i])
		if !req.IssueTokens {
			continue
		}
		if views[i].Token, _, err = h.Tokens.Issue(drivers[i].ID, 0); err != nil {
			return err
		}
	}
	if err := h.Stores.Tokens.AddDrivers(ctx, drivers, req.IssueTokens); err != nil {
		return bulkError{err}
	}
	for i, other := range h.samePhones(c, drivers) {
		views[i].SamePhone = other
	}
	return writeJSON(c, 200, map[string]any{"items": views})
}

type tokenView struct {
	Token     string    `json:"token"`
	ExpiresAt timestamp `json:"expires_at"`
}

func (h *handler) issueToken(c echo.Context, _ string, id dispatch.DriverID) error {
	if err := readNothing(c); err != nil {
		return err
	}
	generation, err := h.Stores.Tokens.RecordTokenIssued(c.Request().Context(), id)
	if err != nil {
		return err
	}
	token, until, err := h.Tokens.Issue(id, generation)
	return respond(c, 201, tokenView{Token: token, ExpiresAt: timestamp(until)}, err)
}

func (h *handler) revokeTokens(c echo.Context, _ string, id dispatch.DriverID) error {
	return done(c, 204, h.Revocations.Revoke(c.Request().Context(), id))
}
