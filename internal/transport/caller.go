package transport

import "context"

// Caller is the role in the cluster of a listener's caller. Users must not use up the slots and
// connections that agents need, so each Caller has bounds of its own.
type Caller uint8

// The roles of callers.
const (
	CallerUser    Caller = iota // a person or program that uses the cluster, and every unknown caller
	CallerAgent                 // the agent of a node
	CallerGateway               // a gateway
)

type callerKey struct{}

// WithCaller returns a context in which CallerOf returns c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the role of the caller of a context's request.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
