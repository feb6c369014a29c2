package handler

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

type moneyView struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// dispatchView is a dispatch in an answer. AcceptedBy is set for admins only: drivers must not learn who won.
type dispatchView struct {
	ID                dispatch.ID          `json:"id"`
	ExternalID        *string              `json:"external_id"`
	Status            dispatch.Status      `json:"status"`
	Round             int                  `json:"round"`
	Version           int                  `json:"version"`
	Region            string               `json:"region"`
	VehicleClass      string               `json:"vehicle_class"`
	MinWorkingHeightM *float64             `json:"min_working_height_m"`
	SiteAddress       string               `json:"site_address"`
	SiteLat           *float64             `json:"site_lat"`
	SiteLng           *float64             `json:"site_lng"`
	WorkStartsAt      timestamp            `json:"work_starts_at"`
	WorkEndsAt        timestamp            `json:"work_ends_at"`
	Fee               moneyView            `json:"fee"`
	Note              *string              `json:"note"`
	OpensAt           timestamp            `json:"opens_at"`
	ExpiresAt         timestamp            `json:"expires_at"`
	AcceptedAt        *timestamp           `json:"accepted_at"`
	AcceptedBy        dispatch.DriverID    `json:"accepted_by,omitempty"`
	OfferStatus       dispatch.OfferStatus `json:"offer_status,omitempty"`
	CreatedAt         timestamp            `json:"created_at"`
	UpdatedAt         timestamp            `json:"updated_at"`
}

func viewDispatch(d dispatch.Dispatch) dispatchView {
	v := dispatchView{
		ID: d.ID, ExternalID: nullable(d.ExternalID), Status: d.Status, Round: d.Round, Version: d.Version,
		Region: d.Region, VehicleClass: d.VehicleClass, MinWorkingHeightM: d.MinWorkingHeightM,
		SiteAddress: d.Site.Address, SiteLat: d.Site.Lat, SiteLng: d.Site.Lng,
		WorkStartsAt: timestamp(d.WorkStartsAt), WorkEndsAt: timestamp(d.WorkEndsAt),
		Fee: moneyView(d.Fee), Note: nullable(d.Note),
		OpensAt: timestamp(d.OpensAt), ExpiresAt: timestamp(d.ExpiresAt),
		CreatedAt: timestamp(d.CreatedAt), UpdatedAt: timestamp(d.UpdatedAt),
	}
	if d.Claim != nil {
		v.AcceptedAt = optionalTimestamp(&d.Claim.AcceptedAt)
	}
	return v
}

func viewForAdmin(d dispatch.Dispatch) dispatchView {
	v := viewDispatch(d)
	if d.Claim != nil {
		v.AcceptedBy = d.Claim.Driver
	}
	return v
}

type driverView struct {
	ID             dispatch.DriverID `json:"id"`
	Name           string            `json:"name"`
	Phone          string            `json:"phone"`
	Regions        []string          `json:"regions"`
	VehicleClass   string            `json:"vehicle_class"`
	WorkingHeightM *float64          `json:"working_height_m"`
	FirebaseUID    *string           `json:"firebase_uid"`
	Locale         *string           `json:"locale"`
	OnDuty         bool              `json:"on_duty"`
	SuspendedUntil *timestamp        `json:"suspended_until"`
	Token          string            `json:"token,omitempty"`
	SamePhone      dispatch.DriverID `json:"same_phone,omitempty"`
}

func viewDriver(v dispatch.Driver) driverView {
	return driverView{
		ID: v.ID, Name: v.Name, Phone: v.Phone, Regions: v.Regions, VehicleClass: v.VehicleClass,
		WorkingHeightM: v.WorkingHeightM, FirebaseUID: nullable(v.FirebaseUID), Locale: nullable(v.Locale),
		OnDuty: v.OnDuty, SuspendedUntil: optionalTimestamp(v.SuspendedUntil),
	}
}

type listView[T any] struct {
	Items      []T       `json:"items"`
	NextCursor *string   `json:"next_cursor"`
	ServerTime timestamp `json:"server_time"`
}

func viewList[D, V any](items []D, next string, now time.Time, view func(D) V) listView[V] {
	list := listView[V]{Items: make([]V, len(items)), NextCursor: nullable(next), ServerTime: timestamp(now)}
	for i, d := range items {
		list.Items[i] = view(d)
	}
	return list
}

// list answers with the page that read returns, unless a parameter of the query is wrong.
func list[D, V any](h *handler, in *query, view func(D) V, read func(context.Context) ([]D, string, error)) error {
	if in.err != nil {
		return in.err
	}
	items, next, err := read(in.c.Request().Context())
	return respond(in.c, 200, viewList(items, next, h.Now(), view), err)
}

// cut returns the page of a whole list that begins with the first item that follows the page before, and the cursor of the next page: the
// key of the page's last item.
func cut[T any](all []T, most int, follows func(T) bool, key func(T) string) (page []T, next string) {
	if page = slices.DeleteFunc(all, func(v T) bool { return !follows(v) }); len(page) > most {
		page = page[:most]
		next = key(page[most-1])
	}
	return page, next
}

func optionalTimestamp(t *time.Time) *timestamp {
	if t == nil {
		return nil
	}
	ts := timestamp(*t)
	return &ts
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// respond writes v unless there is an error, which it returns.
func respond(c echo.Context, status int, v any, err error) error {
	if err != nil {
		return err
	}
	return writeJSON(c, status, v)
}

// respondVersion is respond with the version of what is written as its ETag, for the If-Match of the next change.
func respondVersion(c echo.Context, status, version int, v any, err error) error {
	if err == nil {
		c.Response().Header().Set("ETag", strconv.Quote(strconv.Itoa(version)))
	}
	return respond(c, status, v, err)
}

// done answers without a body unless there is an error, which it returns.
func done(c echo.Context, status int, err error) error {
	if err != nil {
		return err
	}
	return c.NoContent(status)
}

// writeJSON writes v, as application/json unless a content type is set.
func writeJSON(c echo.Context, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	if header.Get(echo.HeaderContentType) == "" {
		header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	}
	c.Response().WriteHeader(status)
	_, err = c.Response().Write(body)
	return err
}

// nullableRank returns null for 0, which is no rank.
func nullableRank(rank int) *int {
	if rank == 0 {
		return nil
	}
	return &rank
}

// milliseconds returns d in milliseconds, in whole microseconds.
func milliseconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	ms := float64(d.Microseconds()) / 1000
	return &ms
}
