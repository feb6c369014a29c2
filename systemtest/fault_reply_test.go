package systemtest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"firsttap/testkit"
)

// TestRepliesAreLost: whichever reply of the database is lost, a driver with a 200 has the dispatch, and a driver without one may
// ask again and gets the truth.
func TestRepliesAreLost(t *testing.T) {
	onStages(t, map[string]func(*testing.T, *stage){
		"commit": replyOfCommitIsLost, "commit and database": replyOfCommitIsLostAndTheDatabaseToo,
		"client": clientHangsUpDuringTheClaim, "withdrawal": replyOfWithdrawalIsLost, "connections": connectionsAreCut,
	})
}

func replyOfCommitIsLost(t *testing.T, s *stage) {
	for range testkit.Scale(3, 30) {
		o := s.offer(t)
		cut := s.proxy.CutReply(callOfClaim)
		a := o.tap(s.one, 0)
		testkit.Await(t, "the reply was cut", cut.Done())
		o.mustBeWon(0, a)
		if *a.Replayed {
			t.Errorf("the first tap is answered as a repetition: %s", a)
		}
		o.mustReplay(s.one, 0)
		o.mustBeTaken(s.one, 1, true)
	}
}

// While it is unknown whether a claim was committed, the response says so; the retry gets the result.
func replyOfCommitIsLostAndTheDatabaseToo(t *testing.T, s *stage) {
	o := s.offer(t)
	cut := s.proxy.CutReply(callOfClaim)
	away := s.proxy.Hold("INSERT INTO events") // the instance's question about the outcome does not arrive
	answered := o.tapping(s.one, 0)
	testkit.Await(t, "the reply was cut", cut.Done())
	testkit.Await(t, "the instance asks", away.Reached())
	s.proxy.Refuse(true)
	o.mustBeUnavailable(<-answered)
	if a := o.tap(s.one, 1); a.Won() || a.Final != nil && *a.Final {
		t.Errorf("another driver got %s", a)
	}
	s.proxy.Refuse(false)
	o.mustReplay(s.one, 0)
}

// The driver's connection ends while the claim is being decided, and the claim is decided all the same.
func clientHangsUpDuringTheClaim(t *testing.T, s *stage) {
	for range testkit.Scale(3, 10) {
		o := s.offer(t)
		hold := s.proxy.Hold(callOfClaim)
		ctx, hangUp := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", s.one.URL+"/v1/dispatches/"+o.id+"/accept", strings.NewReader(`{"round":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+o.drivers[0].Token)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if resp, err := Client.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		testkit.Await(t, "the claim is on its way", hold.Reached())
		hangUp()
		<-gone
		hold.Release()
		o.mustReplay(s.one, 0) // before or after the decision
		o.mustBeTaken(s.one, 1, true)
	}
}

// A withdrawal whose COMMIT's reply was lost has happened. A driver who names no round must not get a final refusal.
func replyOfWithdrawalIsLost(t *testing.T, s *stage) {
	o := s.offer(t)
	o.mustBeWon(0, o.tap(s.one, 0))
	withdraw := func() Response {
		return send("POST", s.one.URL+"/v1/dispatches/"+o.id+"/withdraw", o.drivers[0].Token, "")
	}
	cut := s.proxy.CutReply("COMMIT", "UPDATE `dispatches`")
	withdraw()
	testkit.Await(t, "the reply was cut", cut.Done())
	if a := withdraw(); a.status != 200 || a.Round != 2 {
		t.Fatalf("the retry of the withdrawal: %s", a)
	}
	if a := Accept(s.one, o.id, o.drivers[1], 0); !a.Won() {
		t.Errorf("round 2 is open, and the driver got %s", a)
	}
}

// A holder of the lock whose commit fails has turned others away for nothing: they get the offer again, once.
func connectionsAreCut(t *testing.T, s *stage) {
	o := s.holdClaim(t, callOfClaim)
	o.mustBeTaken(s.one, 1, false)
	o.mustBeTaken(s.two, 2, false)
	s.proxy.CutAll()
	o.mustBeUnavailable(<-o.answered)
	o.mustBeOffered()
}
