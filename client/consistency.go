package client

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

type (
	consistencyKey struct{}
	stampKey       struct{}
)

// WithConsistency sets the consistency of the reads that are made with a context, instead of
// Config.Consistency. Watches are always strict.
//
//	ctx = client.WithConsistency(ctx, plimsoll.AtLeast(stamp.Epoch, stamp.Revision))
//	for task, err := range c.Tasks(ctx, filter) {
func WithConsistency(ctx context.Context, consistency plimsoll.Consistency) context.Context {
	return context.WithValue(ctx, consistencyKey{}, consistency)
}

// Stamp is the state from which a read was answered.
type Stamp struct {
	// Version is zero if the server is of an older version.
	plimsoll.Version
	// Age is how long ago the gateway's copy was known to be complete. The answer may lack younger
	// changes; 0: it lacks none.
	Age time.Duration
}

// WithStamp lets each read that is made with a context store the state of its answer in a Stamp. A
// list stores that of each page. The reads of one context must not run at the same time.
func WithStamp(ctx context.Context, into *Stamp) context.Context {
	return context.WithValue(ctx, stampKey{}, into)
}

// consistency returns the consistency for a read.
func (c *Client) consistency(ctx context.Context) *pb.Consistency {
	if asked, ok := ctx.Value(consistencyKey{}).(plimsoll.Consistency); ok {
		return wire.ConsistencyToProto(asked)
	}
	return wire.ConsistencyToProto(c.level)
}

// stamped is an answer to a read.
type stamped interface {
	GetEpoch() uint64
	GetRevision() uint64
	GetAgeNanos() int64
}

// stamp stores the state of an answer if the caller has asked for it by WithStamp.
func stamp(ctx context.Context, answer any) {
	into, ok := ctx.Value(stampKey{}).(*Stamp)
	if of, is := answer.(stamped); ok && is && into != nil {
		*into = Stamp{
			Version: plimsoll.Version{Epoch: of.GetEpoch(), Revision: of.GetRevision()},
			Age:     time.Duration(of.GetAgeNanos()),
		}
	}
}
