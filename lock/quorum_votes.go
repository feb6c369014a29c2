package lock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// votes are the answers of a quorum's servers.
type votes struct {
	answers          []error // by server; errPending if the decision did not need the answer
	yes, no, unknown int
	majority         int
}

var errPending = errors.New("lock: not answered before the decision")

// decided reports whether the missing answers can't change the result.
func (v votes) decided() bool { return v.yes >= v.majority || v.no > len(v.answers)-v.majority }

// answered reports whether a majority has answered, with yes or no.
func (v votes) answered() bool { return v.yes+v.no >= v.majority }

// all makes askAll wait for every server.
func (v votes) all() bool { return false }

// askAll asks all servers concurrently. It returns when enough is true or all have answered, so that a server that hangs
// does not delay the others. The values are those of the servers that answered yes.
func askAll[T any](
	ctx context.Context, servers int, server func(ctx context.Context, i int) (T, error), enough func(votes) bool,
) ([]T, votes) {
	values, v := make([]T, servers), votes{answers: make([]error, servers), majority: servers/2 + 1}
	type answer struct {
		i     int
		value T
		err   error
	}
	answers := make(chan answer, servers)
	for i := range servers {
		v.answers[i] = errPending
		go func() {
			detached, cancel := detach(ctx)
			defer cancel()
			value, err := server(detached, i)
			answers <- answer{i, value, err}
		}()
	}
	for range servers {
		select {
		case a := <-answers:
			values[a.i] = a.value
			v.count(a.i, a.err)
		case <-ctx.Done():
			v.unknown = servers - v.yes - v.no
			return values, v
		}
		if enough(v) {
			break
		}
	}
	return values, v
}

func (v *votes) count(i int, err error) {
	v.answers[i] = err
	switch {
	case err == nil:
		v.yes++
	case errors.Is(err, ErrHeld), errors.Is(err, ErrLost):
		v.no++
	default:
		v.unknown++
	}
}

func (q *Quorum) askAll(ctx context.Context, server func(ctx context.Context, i int) error, enough func(votes) bool) votes {
	_, v := askAll(ctx, len(q.nodes), func(ctx context.Context, i int) (struct{}, error) { return struct{}{}, server(ctx, i) }, enough)
	return v
}

// unavailable returns ErrUnavailable with the texts of the servers' answers. It does not wrap them, because a single
// server's "held" or "lost" is not the quorum's answer.
func (v votes) unavailable(ctx context.Context) error {
	return unavailable(ctx, errors.New(errors.Join(v.answers...).Error()))
}

// heldError returns why an acquisition has no majority: a HeldError or errSplit if enough servers have answered, otherwise
// ErrUnavailable.
func (v votes) heldError() error {
	if v.unknown > len(v.answers)-v.majority {
		return v.unavailable(context.Background())
	}
	left := map[string][]time.Duration{} // by owner
	most := ""
	for _, err := range v.answers {
		var held *HeldError
		if !errors.As(err, &held) {
			continue
		}
		left[held.Owner] = append(left[held.Owner], held.Remaining)
		if len(left[held.Owner]) > len(left[most]) {
			most = held.Owner
		}
	}
	if len(left[most]) == 0 || len(left[most]) < v.majority-v.unknown {
		return errSplit
	}
	return &HeldError{Owner: most, Remaining: v.untilFree(left[most])}
}

// untilFree returns how long an owner can hold a majority if its lease is not renewed, where left is what remains of it on the
// servers that named the owner. It takes the servers that did not answer for ones where the lease lasts longest: a renewal
// returns before it has reached the last server, so a single answer may be older than the renewal.
func (v votes) untilFree(left []time.Duration) time.Duration {
	slices.Sort(left)
	unknown := len(v.answers) - v.yes - v.no
	return left[len(left)-min(max(v.majority-unknown, 1), len(left))]
}

// ownershipError returns nil if a majority confirms that the grant holds the name, ErrStolen or ErrExpired if no majority
// can confirm it any more, and otherwise ErrUnavailable.
func (v votes) ownershipError(ctx context.Context) error {
	switch {
	case v.yes >= v.majority:
		return nil
	case v.no <= len(v.answers)-v.majority:
		return v.unavailable(ctx)
	case v.isStolen():
		return ErrStolen
	}
	return ErrExpired
}

// isStolen reports whether a server knows another owner.
func (v votes) isStolen() bool {
	return slices.ContainsFunc(v.answers, func(err error) bool { return errors.Is(err, ErrStolen) })
}

// List implements Admin. It needs a majority.
func (q *Quorum) List(ctx context.Context) ([]Holder, error) {
	lists, v := askAll(ctx, len(q.nodes), func(ctx context.Context, i int) ([]Holder, error) { return q.nodes[i].List(ctx) }, votes.all)
	if v.yes < v.majority {
		return nil, v.unavailable(ctx)
	}
	return v.agreed(lists), nil
}

// agreed returns the holders that a majority of the lists contains, ordered by name.
func (v votes) agreed(lists [][]Holder) []Holder {
	type possession struct{ name, owner string }
	held := map[possession][]Holder{}
	for _, h := range slices.Concat(lists...) {
		p := possession{h.Name, h.Owner}
		held[p] = append(held[p], h)
	}
	var found []Holder
	for _, same := range held {
		if len(same) < v.majority {
			continue
		}
		h, left := same[0], make([]time.Duration, len(same))
		for i := range same {
			left[i] = same[i].Remaining
		}
		h.Remaining = v.untilFree(left)
		found = append(found, h)
	}
	slices.SortFunc(found, func(a, b Holder) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Show implements Admin. It needs a majority.
func (q *Quorum) Show(ctx context.Context, name string) (Holder, error) {
	return q.inspect(ctx, name, func(ctx context.Context, i int) (Holder, error) { return q.nodes[i].Show(ctx, name) })
}

// Break implements Admin. It needs a majority. If it fails, a minority may have freed the name.
func (q *Quorum) Break(ctx context.Context, name string) (Holder, error) {
	h, err := q.inspect(ctx, name, func(ctx context.Context, i int) (Holder, error) { return q.nodes[i].Break(ctx, name) })
	if err != nil {
		return h, err
	}
	v := q.askAll(ctx, func(ctx context.Context, i int) error { return q.nodes[i].raiseFence(ctx, name, "", h.Fence) }, votes.all)
	if v.yes < v.majority {
		return h, v.unavailable(ctx)
	}
	return h, nil
}

func (q *Quorum) inspect(ctx context.Context, name string, server func(ctx context.Context, i int) (Holder, error)) (Holder, error) {
	seen, v := askAll(ctx, len(q.nodes), server, votes.all)
	if v.yes < v.majority {
		return Holder{}, v.unavailable(ctx)
	}
	h := Holder{Name: name}
	held := slices.DeleteFunc(slices.Clone(seen), func(h Holder) bool { return h.Owner == "" })
	if agreed := v.agreed([][]Holder{held}); len(agreed) > 0 {
		h = agreed[0]
	}
	for _, s := range seen {
		h.Fence = max(h.Fence, s.Fence)
	}
	return h, nil
}
