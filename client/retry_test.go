package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

type empty = emptypb.Empty

type unary func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error)

// failing answers with err until its time comes.
func failing(err error, until time.Duration) (f unary, calls *int) {
	began, calls := time.Now(), new(int)
	return func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error) {
		if *calls++; time.Since(began) < until {
			return nil, wire.ConnectError(err)
		}
		return connect.NewResponse(&empty{}), nil
	}, calls
}

func TestACallIsTriedAgainUntilTheServerIsBack(t *testing.T) {
	for _, code := range []plimsoll.Code{plimsoll.CodeUnavailable, plimsoll.CodeExhausted} {
		synctest.Test(t, func(t *testing.T) {
			f, calls := failing(plimsoll.Errorf(code, "come back"), 5*time.Second)
			if _, err := call(t.Context(), &Client{budget: 10 * time.Second}, f, &empty{}); err != nil {
				t.Errorf("%v: %v", code, err)
			}
			if *calls < 5 || *calls > 15 {
				t.Errorf("%v: %d calls in five seconds; the delays do not grow as they should", code, *calls)
			}
		})
	}
}

func TestRetriesEndWithTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f, _ := failing(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"), time.Hour)
		_, err := call(t.Context(), &Client{budget: 10 * time.Second}, f, &empty{})
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestRetriesEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		f, _ := failing(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"), time.Hour)
		if _, err := call(ctx, &Client{budget: time.Minute}, f, &empty{}); err == nil {
			t.Error("no error")
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestWhatWillNotGetBetterIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code := plimsoll.CodeInternal; code <= plimsoll.CodeOutcomeUnknown; code++ {
			switch code {
			case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeOutcomeUnknown:
				continue
			case plimsoll.CodeCanceled, plimsoll.CodeDeadline: // of the server: the caller's context goes on
				continue
			}
			f, calls := failing(plimsoll.Errorf(code, "no"), time.Hour)
			_, err := call(t.Context(), &Client{budget: time.Minute}, f, &empty{})
			if plimsoll.CodeOf(err) != code || *calls != 1 {
				t.Errorf("%v: %d calls, %v", code, *calls, err)
			}
		}
	})
}

func TestANegativeBudgetMeansOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := failing(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"), time.Hour)
		_, err := call(t.Context(), &Client{budget: -1}, f, &empty{})
		var e *plimsoll.Error
		if *calls != 1 || !errors.As(err, &e) {
			t.Errorf("%d calls, %v", *calls, err)
		}
	})
}
