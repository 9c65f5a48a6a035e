package client

import (
	"context"
	"crypto/rand"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

type tokenKey struct{}

// WithToken sets the token of the change that is made with a context; otherwise it is random. A
// caller that writes the token down first can repeat the call after a restart of its process: for
// ten minutes the answer is that of the first call. Another change needs another token.
//
//	status, err := c.ScaleJob(client.WithToken(ctx, token), "wordcount", "map", 5)
func WithToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// tokenOf returns the token for a change, which is the same in all repetitions of the call.
func tokenOf(ctx context.Context) string {
	if token, ok := ctx.Value(tokenKey{}).(string); ok {
		return token
	}
	return rand.Text()
}

// change makes a unary call that changes something until it succeeds or the retries end. The
// request must carry a token. If an attempt may have had an effect and no later one was answered,
// the error is CodeOutcomeUnknown.
func change[Req, Res any](
	ctx context.Context, c *Client,
	f func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) (*Res, error) {
	if err := ctx.Err(); err != nil {
		return nil, wire.FromConnectError(err)
	}
	unknown := false
	for r := c.newRetry(); ; {
		res, err := f(ctx, connect.NewRequest(req))
		if err == nil {
			return res.Msg, nil
		}
		r.failed(err)
		err = wire.FromChangeError(err)
		unknown = unknown || plimsoll.CodeOf(err) == plimsoll.CodeOutcomeUnknown
		if err := r.wait(ctx, err); err != nil {
			return nil, outcome(unknown, err)
		}
	}
}

// outcome returns the error of a change whose last attempt ended with err. unknown says that an
// earlier attempt may have had an effect. If the leader then refuses the change for good, no
// attempt had an effect: otherwise the leader would have repeated its first answer.
func outcome(unknown bool, err error) error {
	if !unknown {
		return err
	}
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeOutcomeUnknown, plimsoll.CodeInvalid, plimsoll.CodeNotFound, plimsoll.CodeAlreadyExists,
		plimsoll.CodeConflict, plimsoll.CodeStale:
		return err
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeOutcomeUnknown, Err: err,
		Msg: "the outcome is not known: the change was made or not; look before you try again",
	}
}
