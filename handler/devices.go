package handler

import (
	"context"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// deviceStore stores the devices that drivers' apps run on.
type deviceStore interface {
	PutDevice(ctx context.Context, v dispatch.Device) (dispatch.Device, error)
	DeleteDevice(ctx context.Context, driver dispatch.DriverID, installation string) error
	Devices(ctx context.Context, driver dispatch.DriverID, page dispatch.Page) ([]dispatch.Device, string, error)
}

type deviceRequest struct {
	Platform   dispatch.Platform `json:"platform"    validate:"required,oneof=android ios web"`
	PushToken  string            `json:"push_token"  validate:"required,max=1024,graphic"`
	AppVersion string            `json:"app_version"`
	Locale     string            `json:"locale"`
}

const maxInstallationID = 128

// installationID returns the installation's id in the path, which the app chose.
func installationID(c echo.Context) (string, error) {
	id := c.Param("installation_id")
	if strings.Contains(id, "/") { // the router puts the rest of the path into the parameter
		return "", echo.ErrNotFound
	}
	if c.Request().URL.RawPath != "" { // the router matched the escaped path
		var err error
		if id, err = url.PathUnescape(id); err != nil {
			id = ""
		}
	}
	if id == "" || len(id) > maxInstallationID || !isGraphic(id) {
		return "", invalidField("installation_id", "must be 1 to 128 printable ASCII characters without spaces")
	}
	return id, nil
}

// deviceView does not contain the push token, which allows sending to the device.
type deviceView struct {
	InstallationID string            `json:"installation_id"`
	Platform       dispatch.Platform `json:"platform"`
	AppVersion     *string           `json:"app_version"`
	Locale         *string           `json:"locale"`
	UpdatedAt      timestamp         `json:"updated_at"`
}

func (h *handler) putDevice(c echo.Context, me dispatch.DriverID) error {
	id, err := installationID(c)
	if err != nil {
		return err
	}
	req, err := read[deviceRequest](c, maxKeyBody)
	if err != nil {
		return err
	}
	v, err := h.Stores.Devices.PutDevice(c.Request().Context(), dispatch.Device{
		Driver: me, Installation: id, Platform: req.Platform, PushToken: req.PushToken,
		AppVersion: req.AppVersion, Locale: languageTag(req.Locale), // without a language, the driver's
	})
	return respond(c, 200, viewDevice(v), unauthenticatedIfGone(err))
}

func viewDevice(v dispatch.Device) deviceView {
	return deviceView{
		InstallationID: v.Installation, Platform: v.Platform, AppVersion: nullable(v.AppVersion),
		Locale: nullable(v.Locale), UpdatedAt: timestamp(v.UpdatedAt),
	}
}

func (h *handler) deleteDevice(c echo.Context, me dispatch.DriverID) error {
	id, err := installationID(c)
	if err != nil {
		return err
	}
	return done(c, 204, unauthenticatedIfGone(h.Stores.Devices.DeleteDevice(c.Request().Context(), me, id)))
}
