package dev

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/historian"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// HistoryConfig configures the history that a historian writes. Its zero value is one in the
// directory "history" of the data directory, without a bound on its age.
type HistoryConfig struct {
	None bool   // there is no history
	File string // default: history/events.db in the data directory
	// Keep bounds the history. If Bytes is zero, the bound is a quarter of the disk, at most
	// MaxArchiveBytes.
	Keep history.Retention
}

// Historian returns the part of a historian's configuration that follows from this one, for a data
// directory, which is made if it is not there. The caller closes the reader.
func (c *HistoryConfig) Historian(data string) (historian.Config, error) {
	path := c.File
	if path == "" {
		path = filepath.Join(data, "history", "events.db")
	}
	for _, dir := range []string{data, filepath.Dir(path)} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return historian.Config{}, plimsoll.Invalid("--history",
				"%s cannot be made: %v; choose a directory that you may write to", dir, err)
		}
	}
	cfg := historian.Config{
		Open:   func(ctx context.Context) (history.Writer, error) { return sqlite.OpenWriter(ctx, path) },
		Reader: sqlite.OpenReader(path), Keep: c.Keep,
	}
	if cfg.Keep.Bytes == 0 {
		cfg.Keep.Bytes = defaultArchiveBytes(path)
	}
	return cfg, nil
}

// makeHistorian adds a historian that follows the gateway of this process, as it would any other.
// The gateway answers for it.
func (d *Dev) makeHistorian() error {
	cfg := &d.cfg
	if cfg.History.None {
		return nil
	}
	of, err := cfg.History.Historian(cfg.Data)
	if err != nil {
		return err
	}
	source, err := client.New(client.Config{Server: d.URL(), TokenFile: cfg.UserTokenFile})
	if err == nil {
		of.Source, of.Now, of.Metric = source, time.Now, cfg.Coordinator.Metrics
		of.Events = HistorianEvents(cfg.Logger)
		err = d.runHistorian(of, source)
	}
	if err != nil {
		return errors.Join(err, of.Reader.Close())
	}
	return nil
}

func (d *Dev) runHistorian(of historian.Config, source *client.Client) error {
	h, err := historian.New(of)
	if err != nil {
		return err
	}
	d.cfg.Gateway.History = &gateway.History{Calls: h.Calls(), Plain: h.Plain(), Root: historian.PlainRoot}
	d.parts = append(d.parts, func(ctx context.Context) error {
		defer source.Close()
		if d.Ready(ctx) != nil {
			return of.Reader.Close() // told to stop before the gateway was ready
		}
		return errors.Join(h.Run(ctx), of.Reader.Close())
	})
	return nil
}

// HistorianEvents logs the events of a historian.
func HistorianEvents(log *slog.Logger) historian.Events {
	return historian.Events{
		Serving: func(address string) { log.Info("serving", "address", address) },
		Following: func(instance string, next uint64) {
			log.Info("following the events", "instance", instance, "next", next)
		},
		Waiting: func(err error) { log.Warn("the events cannot be followed: it is tried again", "reason", err) },
		Trouble: func(err error) {
			if err == nil {
				log.Info("the history takes events again")
				return
			}
			log.Error("the history takes no events", "reason", err)
		},
		Registered: func(err error) {
			if err == nil {
				log.Info("registered: events that the history lacks are held back")
				return
			}
			log.Warn("not registered: events that the history lacks are not held back", "reason", err)
		},
		Gap: func(g history.Gap) {
			log.Warn("the history lacks events", "instance", g.Instance, "first", g.First, "next", g.Next,
				"reason", g.Reason)
		},
		Fault: func(call string, err error) { log.Error("fault", "call", call, "error", err) },
	}
}

// HistorianAccess returns the access of a historian. When the historian is served, its token is
// read from the file, or made there.
func (c AccessConfig) HistorianAccess(file string) *transport.Access {
	return c.access(func() ([]transport.Grant, error) {
		made, err := token.Make(token.User, file)
		return []transport.Grant{{Token: made, Caller: transport.CallerUser}}, err
	}, "")
}
