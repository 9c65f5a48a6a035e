package transport

import "context"

// Caller is the part that somebody who calls a listener plays in the cluster. What a user does must
// not take away what an agent needs; so bounds are kept for each Caller.
type Caller uint8

// The parts of callers.
const (
	CallerUser    Caller = iota // a person or program that uses the cluster, and everybody who is not known
	CallerAgent                 // the agent of a node
	CallerGateway               // a gateway
)

type callerKey struct{}

// WithCaller returns a context in which CallerOf returns c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the part of the caller of the request that a context belongs to.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
