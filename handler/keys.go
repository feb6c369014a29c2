package handler

import (
	"context"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// keyStore lists and revokes keys, and audits sign-ins with them.
type keyStore interface {
	Keys(ctx context.Context, page dispatch.Page) ([]dispatch.KeyRecord, string, error)
	// RevokeKey revokes a key: its next request is refused, on every instance. A repeated call changes nothing. ErrKeyNotFound,
	// ErrFirstKey.
	RevokeKey(ctx context.Context, id string) error
	RecordSignIn(ctx context.Context, key, address string) error
}

type keyRequest struct {
	Name string `json:"name" validate:"required,max=200"`
	Role string `json:"role" validate:"required,oneof=viewer dispatcher admin"`
}

type keyView struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      string    `json:"role"`
	CreatedAt timestamp `json:"created_at"`
}

// newKeyView is the only answer that contains a key's secret.
type newKeyView struct {
	keyView
	Key string `json:"key"`
}

type listedKeyView struct {
	keyView
	RevokedAt *timestamp `json:"revoked_at"`
}

func viewKey(k dispatch.KeyRecord) keyView {
	return keyView{ID: k.ID, Name: k.Name, Role: k.Role.String(), CreatedAt: timestamp(k.CreatedAt)}
}

func (h *handler) createKey(c echo.Context, _ string) error {
	req, err := read[keyRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	mine, err := h.credentials(c)
	if err != nil {
		return err
	}
	k, secret, err := h.Keys.Create(c.Request().Context(), req.Name, dispatch.ParseRole(req.Role), mine.key)
	return respond(c, 201, newKeyView{viewKey(k), secret}, err)
}

func (h *handler) listKeys(c echo.Context, _ string) error {
	in := &query{c: c}
	page := in.page(maxLimit)
	view := func(k dispatch.KeyRecord) listedKeyView {
		return listedKeyView{viewKey(k), optionalTimestamp(k.RevokedAt)}
	}
	return list(h, in, view, func(ctx context.Context) ([]dispatch.KeyRecord, string, error) { return h.Stores.Keys.Keys(ctx, page) })
}

func parseKeyID(id string) (string, error) {
	if !dispatch.LooksLikeID(id) {
		return "", dispatch.ErrKeyNotFound
	}
	return id, nil
}

func (h *handler) revokeKey(c echo.Context, _, id string) error {
	return done(c, 204, h.Stores.Keys.RevokeKey(c.Request().Context(), id))
}
