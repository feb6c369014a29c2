package handler

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

const (
	defaultLimit = 50
	maxLimit     = 200
)

// page returns the page that ?limit= and ?cursor= ask for.
func page(c echo.Context) (dispatch.Page, error) {
	limit, err := numberParam(c, "limit", defaultLimit, 1, maxLimit)
	return dispatch.Page{Limit: limit, Cursor: c.QueryParam("cursor")}, err
}

// status returns the status in ?status=, "" if there is none.
func status(c echo.Context) (dispatch.Status, error) {
	s := dispatch.Status(c.QueryParam("status"))
	if s != "" && !s.Valid() {
		return "", invalidField("status", "is not a state of a dispatch")
	}
	return s, nil
}

// numberParam returns a number from the query, or otherwise if there is none.
func numberParam(c echo.Context, name string, otherwise, least, most int) (int, error) {
	s := c.QueryParam(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, invalidField(name, "must be a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
	return n, nil
}

// textParam returns text from the query. It refuses what the databases don't accept as text.
func textParam(c echo.Context, name string) (string, error) {
	s := c.QueryParam(name)
	if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
		return "", invalidField(name, "must be text")
	}
	return s, nil
}

func boolParam(c echo.Context, name string) (*bool, error) {
	switch c.QueryParam(name) {
	case "":
		return nil, nil //nolint:nilnil // the parameter is not given
	case "true":
		return new(true), nil
	case "false":
		return new(false), nil
	}
	return nil, invalidField(name, "must be true or false")
}
