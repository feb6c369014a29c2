package handler

import (
	"context"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// keyStore lists and revokes keys, and audits sign-ins with them.
type keyStore interface {
	Keys(ctx context.Context, page dispatch.Page) ([]dispatch.KeyRecord, string, error)
	// RevokeKey revokes a key: its next request is refused, on every instance. A repeated call changes nothing. ErrKeyNotFound, ErrFirstKey.
	RevokeKey(ctx context.Context, id string) error
	RecordSignIn(ctx context.Context, key, address string) error
}

type keyRequest struct {
	Name string `json:"name" validate:"required,max=200"`
	Role string `json:"role" validate:"required"`
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
	role := dispatch.ParseRole(req.Role)
	if role == 0 {
		return invalidField("role", "must be viewer, dispatcher or admin")
	}
	mine, err := h.credentials(c)
	if err != nil {
		return err
	}
	k, secret, err := h.Keys.Create(c.Request().Context(), req.Name, role, mine.key)
	if err != nil {
		return err
	}
	return writeJSON(c, 201, newKeyView{viewKey(k), secret})
}

func (h *handler) listKeys(c echo.Context, _ string) error {
	p, err := page(c)
	if err != nil {
		return err
	}
	items, next, err := h.Stores.Keys.Keys(c.Request().Context(), p)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), func(k dispatch.KeyRecord) listedKeyView {
		return listedKeyView{viewKey(k), optionalTimestamp(k.RevokedAt)}
	}))
}

func (h *handler) revokeKey(c echo.Context, _ string) error {
	id := c.Param("id")
	if !dispatch.LooksLikeID(id) {
		return dispatch.ErrKeyNotFound
	}
	if err := h.Stores.Keys.RevokeKey(c.Request().Context(), id); err != nil {
		return err
	}
	return c.NoContent(204)
}
