package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/service"
)

type acceptView struct {
	Result   string       `json:"result"`
	Replayed bool         `json:"replayed"`
	Dispatch dispatchView `json:"dispatch"`
	Claim    claimView    `json:"claim"`
}

type claimView struct {
	ID         dispatch.ClaimID `json:"id"`
	Round      int              `json:"round"`
	AcceptedAt timestamp        `json:"accepted_at"`
}

// accept decides about a driver's tap. Of thirty taps that arrive together, one wins: what the others cost decides how soon the
// winner is answered. TestAllocationsOfALoser counts it.
func (h *handler) accept(c echo.Context) error {
	me, err := h.authenticateDriver(c)
	if err != nil {
		return err
	}
	id, err := dispatch.ParseID(c.Param("id"))
	if err != nil {
		return err
	}
	round, err := readRound(c)
	if err != nil {
		return err
	}
	ctx := dispatch.WithCaller(c.Request().Context(), dispatch.Caller{Actor: string(me), Request: requestID(c), App: appVersion(c)})
	won, err := h.Acceptor.Accept(ctx, service.Tap{Dispatch: id, Driver: me, Round: round})
	if taken, ok := errors.AsType[*dispatch.TakenError](err); ok {
		return h.taken.answer(c, taken)
	}
	if err != nil {
		return claimError{unauthenticatedIfGone(err)}
	}
	claim := won.Dispatch.Claim
	return writeJSON(c, 200, acceptView{
		Result: "SUCCESS", Replayed: won.Replayed, Dispatch: viewDispatch(won.Dispatch),
		Claim: claimView{ID: claim.ID, Round: claim.Round, AcceptedAt: timestamp(claim.AcceptedAt)},
	})
}

// takenAnswers are the answers to taps that lose, but for the path.
type takenAnswers struct{ final, tentative preparedProblem }

// preparedProblem is an encoded problem before and after the path in it.
type preparedProblem struct{ before, after []byte }

func newTakenAnswers() takenAnswers {
	return takenAnswers{prepareProblem(&dispatch.TakenError{Final: true}), prepareProblem(&dispatch.TakenError{})}
}

func prepareProblem(err error) preparedProblem {
	const path = "/path"
	body, failed := json.Marshal(describe(err, path))
	before, after, ok := strings.Cut(string(body), path)
	if failed != nil || !ok {
		panic(fmt.Sprintf("handler: the problem %s can't be prepared: %v", body, failed)) // encoding strings does not fail
	}
	return preparedProblem{[]byte(before), []byte(after)}
}

// problemType is the value of Content-Type, shared by all answers: a header's values are replaced, never changed.
var problemType = []string{"application/problem+json"}

// answer writes the problem for err. The path needs no escapes: it is the route's, with an identifier.
func (t *takenAnswers) answer(c echo.Context, err *dispatch.TakenError) error {
	p := &t.tentative
	if err.Final {
		p = &t.final
	}
	w := c.Response()
	w.Header()[echo.HeaderContentType] = problemType
	w.WriteHeader(http.StatusConflict)
	path := c.Request().URL.Path
	body := make([]byte, 0, len(p.before)+len(path)+len(p.after))
	body = append(append(append(body, p.before...), path...), p.after...)
	_, _ = w.Write(body) // the client has gone
	return nil
}

// maxPlainBody is the longest body that readRound reads itself.
const maxPlainBody = 64

// readRound returns the round in the body, 0 for none. It reads as read[roundRequest] does, and what an app sends without reflection.
func readRound(c echo.Context) (int, error) {
	r := c.Request()
	if n := r.ContentLength; n >= 0 && n <= maxPlainBody {
		body := make([]byte, n)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return 0, bodyError(err)
		}
		if round, ok := parseRound(body); ok {
			return round, nil
		}
		if err := checkCoding(c); err != nil {
			return 0, err
		}
		return decodeRound(body)
	}
	body, err := readBody(c, maxSmallBody)
	if err != nil {
		return 0, err
	}
	return decodeRound(body)
}

func decodeRound(body []byte) (int, error) {
	req, err := decode[roundRequest](body)
	return roundOf(req.Round), err
}

// parseRound reads a body that is empty, or {"round":n} as an app's encoder writes it, with any white space around it and its number. It
// reports false for any other body, also for valid ones.
func parseRound(body []byte) (round int, ok bool) {
	const space = " \t\r\n"
	body = bytes.Trim(body, space)
	rest, starts := bytes.CutPrefix(body, []byte(`{"round":`))
	digits, ends := bytes.CutSuffix(rest, []byte("}"))
	digits = bytes.Trim(digits, space)
	if !starts || !ends || len(digits) == 0 || digits[0] < '1' || digits[0] > '9' { // JSON has no 01, and a round is at least 1
		return 0, len(body) == 0
	}
	round, err := strconv.Atoi(string(digits))
	return round, err == nil && round <= math.MaxInt32
}

const (
	appVersionHeader = "X-App-Version"
	maxAppVersion    = 64
)

// appVersion returns X-App-Version, or "" if it can't be stored: a wrong header must not cost a driver the dispatch.
func appVersion(c echo.Context) string {
	v := c.Request().Header.Get(appVersionHeader)
	if len(v) > maxAppVersion || strings.TrimSpace(v) != v || !isPrintable(v) {
		return ""
	}
	return v
}
