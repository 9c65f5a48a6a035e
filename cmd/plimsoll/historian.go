package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/historian"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// noHistory is the value of --history for a dev without a history.
const noHistory = "none"

// historyKeepFlags belong to the commands that write a history.
type historyKeepFlags struct {
	HistoryAge      time.Duration `help:"How long events are kept; 0: without a bound." default:"8760h" env:"PLIMSOLL_HISTORIAN_AGE" placeholder:"DURATION"`
	HistoryUsageAge time.Duration `help:"How long sums of usage, and jobs that have ended, are kept; at least --history-age; 0: without a bound." default:"87600h" env:"PLIMSOLL_HISTORIAN_USAGE_AGE" placeholder:"DURATION"`
	HistoryBytes    string        `help:"Most disk of the history, such as 10Gi. When there is more, the oldest events go first. Default: a quarter of the disk, at most 50Gi." env:"PLIMSOLL_HISTORIAN_BYTES" placeholder:"AMOUNT"`
}

// parse returns what a history keeps.
func (f *historyKeepFlags) parse() (history.Retention, error) {
	keep := history.Retention{Age: f.HistoryAge, Usage: f.HistoryUsageAge}
	if f.HistoryBytes != "" {
		bytes, err := plimsoll.ParseQuantity(plimsoll.Disk, f.HistoryBytes)
		if err != nil {
			return keep, plimsoll.Invalid("--history-bytes", "%s", err)
		}
		keep.Bytes = max(bytes, 1) // zero stands for the default
	}
	return keep, historian.ValidateRetention(keep)
}

// historyFlags belong to dev, which has a historian inside.
type historyFlags struct {
	History string `help:"File of the history, which keeps all events, or none. Default: history/events.db in --data." env:"PLIMSOLL_HISTORY" placeholder:"FILE"`
	historyKeepFlags
}

func (f *historyFlags) parse() (dev.HistoryConfig, error) {
	keep, err := f.historyKeepFlags.parse()
	c := dev.HistoryConfig{None: f.History == noHistory, Keep: keep}
	if !c.None {
		c.File = f.History
	}
	return c, err
}

type historianCmd struct {
	roleFlags
	hostFlags
	Data     string `help:"Directory of the history and of the token." default:"plimsoll-data/historian" env:"PLIMSOLL_DATA"`
	History  string `help:"File of the history. Default: events.db in --data." env:"PLIMSOLL_HISTORY" placeholder:"FILE"`
	Name     string `help:"Name of the historian. Events are held back under it while the historian is away. Keep the same name for one history, and use another for each other. Default: the one that the history got when it was made: the host's name and a random part." env:"PLIMSOLL_HISTORIAN_NAME" placeholder:"NAME"`
	Listen   string `help:"Address to serve: host:port or unix:/path." default:"127.0.0.1:9086" env:"PLIMSOLL_LISTEN"`
	Insecure bool   `help:"Allow an address that other machines can reach, although nothing is encrypted."`
	historyKeepFlags
	noTokenFlag
	UserTokenFile string `help:"File with the token of those who ask, made if it is not there; default: user.token in --data." env:"PLIMSOLL_USER_TOKEN_FILE" placeholder:"FILE"`
}

// Help is the detail of the help text.
func (historianCmd) Help() string {
	return `A historian follows the events of a gateway (--server, with --token-file as other commands) and
keeps them: what became of each job, task, node and queue, who used how much, and what the
cluster looked like at any time. plimsoll history, usage and at ask it; give them its address by
--server. It goes on where it was after any stop: it registers under --name, and the events that
it lacks are held back for it, within the setting service.event.ringBufferHeldBytes and for at most
72 hours. What is gone by then is missing, and plimsoll history status says so. One historian is
enough for a cluster.

` + example("plimsoll historian --data /var/lib/plimsoll/historian",
		"plimsoll historian --server 10.0.0.2:9080 --token-file user.token --history-age 720h",
		"plimsoll --server 127.0.0.1:9086 usage --by owner --since 7d")
}

// Run follows and serves until it is stopped.
func (cmd *historianCmd) Run(ctx context.Context, a *app) error {
	if err := checkListen(cmd.Listen, cmd.Insecure); err != nil {
		return err
	}
	keep, err := cmd.parse()
	if err != nil {
		return err
	}
	source, err := a.connect(a.clientConfig()) // the historian follows it through all absences by itself
	if err != nil {
		return err
	}
	if cmd.Name != "" {
		if err := plimsoll.ValidateID("--name", cmd.Name); err != nil {
			return err
		}
	}
	log := cmd.logger()
	kept := dev.HistoryConfig{File: cmp.Or(cmd.History, filepath.Join(cmd.Data, "events.db")), Keep: keep}
	cfg, err := kept.Historian(cmd.Data)
	if err != nil {
		return err
	}
	cfg.Name, cfg.Source, cfg.Now, cfg.Events = cmd.Name, source, a.now, dev.HistorianEvents(log)
	cfg.Listen, cfg.Hosts, cfg.Access = cmd.Listen, cmd.Host, cmd.access(a, log)
	h, err := historian.New(cfg)
	if err != nil {
		return errors.Join(err, cfg.Reader.Close())
	}
	return errors.Join(h.Run(ctx), cfg.Reader.Close())
}

// access returns the access rules of a historian; nil if it listens on a socket.
func (cmd *historianCmd) access(a *app, log *slog.Logger) *transport.Access {
	if !listensOnPort(cmd.Listen) {
		return nil
	}
	warnOpen(a, log, cmd.Listen, cmd.NoToken, false)
	file := cmp.Or(cmd.UserTokenFile, filepath.Join(cmd.Data, token.User.FileName()))
	return dev.AccessConfig{NoToken: cmd.NoToken, Logger: log}.HistorianAccess(file)
}
