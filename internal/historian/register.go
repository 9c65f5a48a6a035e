package historian

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// reportEvery is the least time between two reports of a position, and reportAgain that between
	// two reports of the same one.
	reportEvery = 5 * time.Second
	reportAgain = time.Minute
	// reportTimeout bounds the time of a report.
	reportTimeout = 10 * time.Second
	// listTimeout bounds the time in which a gateway lists the historians for GetHistoryStatus.
	listTimeout = 2 * time.Second
)

// setName notes the name under which the historian registers.
func (h *Historian) setName(ctx context.Context, w history.Writer) error {
	name := h.cfg.Name
	if name == "" {
		var err error
		if name, err = w.Name(ctx); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.name = name
	return nil
}

// register tells the gateway how far the history has come, until ctx ends. The events behind that
// are held back for it. A position is told once it is on the disk.
func (h *Historian) register(ctx context.Context) error {
	var told history.Position
	var when time.Time // zero: nothing was told yet
	for {
		at := h.position()
		if at != told || when.IsZero() || h.cfg.Now().Sub(when) >= reportAgain {
			err := h.report(ctx, at)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				told, when = at, h.cfg.Now()
			}
			h.reported(err)
		}
		if !pause(ctx, reportEvery) {
			return nil
		}
	}
}

func (h *Historian) report(ctx context.Context, at history.Position) error {
	h.mu.Lock()
	name := h.mu.name
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return h.cfg.Source.ReportHistorian(ctx, plimsoll.Historian{Name: name, InstanceUUID: at.Instance, Next: at.Next})
}

// unanswered reports whether an error leaves open how the leader would answer. A historian that was
// registered before is so still.
func unanswered(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeDeadline, plimsoll.CodeOutcomeUnknown, plimsoll.CodeCanceled:
		return err != nil
	}
	return false
}

// errNotYet is why a historian that has just begun is not registered.
var errNotYet = errors.New("it has not told the gateway yet how far it has come")

// reported notes whether the historian is registered, by the error of a report.
func (h *Historian) reported(err error) {
	changed, why := h.noteReport(err)
	if changed && h.cfg.Events.Registered != nil {
		h.cfg.Events.Registered(why)
	}
}

// noteReport returns why the historian is not registered; nil: it is. Without an answer that stays
// as it was, until the leader has forgotten the historian.
func (h *Historian) noteReport(err error) (changed bool, why error) {
	now := h.cfg.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.mu.heard = now
	case !unanswered(err):
	case h.mu.unregistered == nil && now.Sub(h.mu.heard) >= plimsoll.KeepHistorian:
		err = plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader has heard it for %s: %v",
			plimsoll.KeepHistorian, err)
	default:
		return false, h.mu.unregistered
	}
	changed = textOf(h.mu.unregistered) != textOf(err)
	h.mu.unregistered = err
	h.metrics.setRegistered(err == nil)
	return changed, err
}

// registration adds the registered historians to the state of the history.
func (h *Historian) registration(ctx context.Context, res *pb.GetHistoryStatusResponse) {
	h.mu.Lock()
	unregistered := h.mu.unregistered
	res.Name = h.mu.name
	h.mu.Unlock()
	if unregistered != nil {
		res.Unregistered = wire.ErrorToProto(unregistered).GetMessage()
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	asked := client.WithConsistency(ctx, plimsoll.Consistency{Level: plimsoll.FreshnessEventual})
	all, err := h.cfg.Source.Historians(asked)
	if err != nil {
		return // the answer is about the history too, which needs no gateway
	}
	m := &pb.RegisteredHistorians{InstanceUuid: all.InstanceUUID, LowestId: all.Lowest, Next: all.Next}
	for i := range all.Historians {
		m.Historians = append(m.Historians, wire.HistorianToProto(&all.Historians[i]))
	}
	res.Registered = m
}
