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
	// maxRound is the largest value of the database's column.
	maxRound = 1<<31 - 1
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

// query reads the parameters of a request's query. It keeps the error of the first that is wrong; what it returns then is of no use.
type query struct {
	c   echo.Context
	err error
}

func (q *query) wrong(name, message string) {
	if q.err == nil {
		q.err = invalidField(name, message)
	}
}

// page returns the page that ?limit=, at most that many, and ?cursor= ask for.
func (q *query) page(most int) dispatch.Page {
	return dispatch.Page{Limit: q.number("limit", defaultLimit, most), Cursor: q.c.QueryParam("cursor")}
}

// number returns a number from 1 to most, or otherwise if there is none.
func (q *query) number(name string, otherwise, most int) int {
	s := q.c.QueryParam(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		q.wrong(name, "must be a number from 1 to "+strconv.Itoa(most))
	}
	return n
}

// text returns a text in the form that it has in bodies.
func (q *query) text(name string) string {
	s, wrong := cleanText(name, q.c.QueryParam(name))
	if wrong != "" {
		q.wrong(name, wrong)
	}
	return s
}

// flag returns nil if the parameter is not given.
func (q *query) flag(name string) *bool {
	switch q.c.QueryParam(name) {
	case "":
		return nil
	case "true":
		return new(true)
	case "false":
		return new(false)
	}
	q.wrong(name, "must be true or false")
	return nil
}

// status returns the state in ?status=, "" if there is none. valid reports whether what the list is of can be in a state.
func status[S ~string](q *query, of string, valid func(S) bool) S {
	s := S(q.c.QueryParam("status"))
	if s != "" && !valid(s) {
		q.wrong("status", "is not a state of a "+of)
	}
	return s
}

// is returns a function that reports whether a state is one of those.
func is[S ~string](states ...S) func(S) bool {
	return func(s S) bool { return slices.Contains(states, s) }
}
