package handler

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

const (
	defaultLimit = 50
	maxLimit     = 200
	// maxDriverLimit bounds a driver's lists: thousands of phones ask for them at once.
	maxDriverLimit = 50
)

// strictQuery refuses requests whose query is not as the OpenAPI document describes it. It is for routes that take no credentials.
func (h *handler) strictQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := h.checkQuery(c); err != nil {
			return err
		}
		return next(c)
	}
}

// checkQuery returns an error for a query that is malformed, or has a name that the OpenAPI document does not list for the route, or has a
// name twice: a filter that was dropped would answer with everything.
func (h *handler) checkQuery(c echo.Context) error {
	query := c.Request().URL.RawQuery
	if query == "" {
		return nil // a tap must cost nothing here
	}
	names := h.queries[c.Request().Method+" "+c.Path()]
	given := map[string]bool{}
	for parameter := range strings.SplitSeq(query, "&") {
		if parameter == "" {
			continue
		}
		escapedName, value, _ := strings.Cut(parameter, "=")
		name, badName := url.QueryUnescape(escapedName)
		_, badValue := url.QueryUnescape(value)
		switch {
		case badName != nil:
			return invalidField(escapedName, "has a % that does not begin an escape such as %25")
		case !slices.Contains(names, name):
			return invalidField(name, "is not a parameter of this request")
		case badValue != nil:
			return invalidField(name, "has a % that does not begin an escape such as %25")
		case strings.Contains(value, ";"):
			return invalidField(name, "has a ; which must be sent as %3B")
		case given[name]:
			return invalidField(name, "is given more than once")
		}
		given[name] = true
	}
	return nil
}

// page returns the page that ?limit= and ?cursor= ask for.
func page(c echo.Context) (dispatch.Page, error) { return pageUpTo(c, maxLimit) }

// pageUpTo returns the page that ?limit=, at most that many, and ?cursor= ask for.
func pageUpTo(c echo.Context, most int) (dispatch.Page, error) {
	limit, err := numberParam(c, "limit", defaultLimit, 1, most)
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

// textParam returns text from the query, in the form that it has in bodies.
func textParam(c echo.Context, name string) (string, error) {
	s, wrong := cleanText(name, c.QueryParam(name))
	if wrong != "" {
		return "", invalidField(name, wrong)
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
