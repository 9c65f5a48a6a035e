package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/backup"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

type storeCmd struct {
	Export storeExportCmd `cmd:"" help:"Write the active state to a file, while the coordinator goes on."`
	Import storeImportCmd `cmd:"" help:"Put such a file into a store."`
	Check  storeCheckCmd  `cmd:"" help:"Check such a file, and sum up what it holds."`
}

// Help is the detail of the help text.
func (storeCmd) Help() string {
	return "The store holds the active state: jobs that have not been archived, tasks, nodes, queues, policies " +
		"and the recent events. Archive and history are files of their own.\n\n" +
		example("plimsoll store export monday.backup", "plimsoll store check monday.backup",
			"plimsoll store import monday.backup --data /var/lib/plimsoll/store")
}

// placeFlags name a store that no coordinator uses.
type placeFlags struct {
	Data string `help:"Directory of the store." env:"PLIMSOLL_DATA" placeholder:"DIR"`
	etcdFlags
}

// validate requires one store.
func (f *placeFlags) validate() error {
	switch {
	case f.Data != "" && f.used():
		return plimsoll.Invalid("--data", "and --etcd are two stores; give one of them")
	case f.Data == "" && !f.used():
		return plimsoll.Invalid("--data", "is missing; name the directory of the store, or give --etcd")
	}
	return nil
}

// open opens the store. It does not wait for a coordinator that uses it.
func (f *placeFlags) open(ctx context.Context) (store.Store, error) {
	if f.used() {
		c, err := f.config(slog.New(slog.NewTextHandler(os.Stderr, nil)))
		if err != nil {
			return nil, err
		}
		return etcd.Open(ctx, c)
	}
	st, err := pebble.Open(pebble.Config{Dir: f.Data})
	if plimsoll.CodeOf(err) == plimsoll.CodeAlreadyRunning {
		return nil, fmt.Errorf("%w; export from it with --coordinator, and stop it before an import", err)
	}
	return st, err
}

// flags returns the flags that name the store for a coordinator.
func (f *placeFlags) flags() string {
	if f.used() {
		text := "--etcd " + strings.Join(f.Etcd, ",")
		if f.EtcdPrefix != etcd.DefaultPrefix {
			text += " --etcd-prefix " + f.EtcdPrefix
		}
		return text
	}
	return "--data " + f.Data
}

type storeExportCmd struct {
	formatFlag
	placeFlags
	File             string `arg:"" help:"File to write."`
	Coordinator      string `help:"Address of the coordinator. Separate several by commas, or write dns:NAME:PORT for all addresses of a name: the one that leads is found." default:"127.0.0.1:9081" env:"PLIMSOLL_LEADER" placeholder:"ADDRESS"`
	GatewayTokenFile string `help:"File with the token of gateways, from the coordinator; default: found if it is on this machine." env:"PLIMSOLL_GATEWAY_TOKEN_FILE" placeholder:"FILE"`
}

// Help is the detail of the help text.
func (storeExportCmd) Help() string {
	return `The coordinator sends the state of one instant and goes on meanwhile. With --data the store is read
without a coordinator, which must be stopped. The file is checked before it gets its name. It has
the commands and environments of jobs, so only its owner may read it.

` + example("plimsoll store export monday.backup",
		"plimsoll store export monday.backup --coordinator unix:plimsoll-data/coordinator.sock",
		"plimsoll store export monday.backup --coordinator 10.0.0.1:9081,10.0.0.2:9081,10.0.0.3:9081",
		"plimsoll store export monday.backup --data /var/lib/plimsoll/store")
}

// Run writes the file.
func (cmd *storeExportCmd) Run(ctx context.Context, a *app) error {
	if _, err := os.Lstat(cmd.File); err == nil {
		return plimsoll.Invalid("file", "%s exists already; name another one, or remove it", cmd.File)
	}
	write := cmd.fromCoordinator
	if cmd.Data != "" || cmd.used() {
		if err := cmd.validate(); err != nil {
			return err
		}
		write = cmd.fromStore
	}
	var content backup.Content
	_, err := writeWhole(cmd.File, ownerOnly, func(w io.Writer) (int, error) {
		if err := write(ctx, w); err != nil {
			return 0, err
		}
		f, err := backup.Open(ctx, partOf(cmd.File))
		if err == nil {
			content = f.Content()
		}
		return 0, err
	})
	if err != nil {
		return err
	}
	return cmd.print(a, content, func(o *output) { contentTable(o, a.now(), cmd.File, &content) })
}

// fromCoordinator writes what the leader sends.
func (cmd *storeExportCmd) fromCoordinator(ctx context.Context, w io.Writer) (err error) {
	leader, err := replica.ReachLeader(ctx, replica.FollowerConfig{
		Gateway: "export", Leader: cmd.Coordinator,
		Tokens: token.Finder{Kind: token.Gateway, File: cmd.GatewayTokenFile},
	})
	if err != nil {
		return fmt.Errorf("find the coordinator that leads, at %s: %w", cmd.Coordinator, err)
	}
	defer leader.Cut()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, leader.URL+coordinator.BackupPath, nil)
	if err != nil {
		return plimsoll.Invalid("coordinator", "%s is not an address: %v", cmd.Coordinator, err)
	}
	response, err := leader.HTTP.Do(request)
	if err != nil {
		return fmt.Errorf("ask the coordinator at %s: %w", cmd.Coordinator, err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		reason, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		if err != nil {
			return fmt.Errorf("read the coordinator's refusal: %w", err)
		}
		return plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the coordinator at %s sends no backup (%s): %s", cmd.Coordinator,
			response.Status, oneLine(string(reason)),
		)
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		return fmt.Errorf("read the backup from %s: %w", cmd.Coordinator, err)
	}
	if reason := response.Trailer.Get(coordinator.BackupErrorTrailer); reason != "" {
		return plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the coordinator broke the backup off: %s; try again", oneLine(reason),
		)
	}
	return nil
}

// fromStore writes the content of a store that no coordinator uses.
func (cmd *storeExportCmd) fromStore(ctx context.Context, w io.Writer) (err error) {
	if !cmd.used() {
		if _, err := os.Stat(cmd.Data); err != nil { // pebble.Open would make an empty store
			return plimsoll.Invalid("--data", "%s: %s", cmd.Data, cause(err))
		}
	}
	st, err := cmd.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	epoch, err := backup.LeadAlone(ctx, st)
	if err != nil {
		return fmt.Errorf("take the store: %w", err)
	}
	_, err = backup.Write(ctx, w, backup.Header{Version: buildVersion().Version, Epoch: epoch}, st.Load)
	return err
}

type storeImportCmd struct {
	formatFlag
	placeFlags
	File   string `arg:"" help:"File that plimsoll store export wrote."`
	Move   bool   `help:"Go on with the events and their ids. Only if the store of the export takes nothing any more."`
	Force  bool   `help:"Replace what the store holds, also if that is newer than the file."`
	DryRun bool   `help:"Only check whether the store could take the file."`
}

// Help is the detail of the help text.
func (storeImportCmd) Help() string {
	return `Stop all coordinators of the store first. The whole file is checked before anything is written, and
all objects that the store cannot take are named. An import that is interrupted leaves a store with
which no coordinator leads; run it again.

Without --move, jobs and nodes come back as they were at the export, and the recent events stay away:
their ids go on under a new InstanceUUID, so readers of events know that some are missing. With
--move, readers of events notice nothing.

` + example("plimsoll store import monday.backup --data /var/lib/plimsoll/store",
		"plimsoll store import monday.backup --data /var/lib/plimsoll/store --force",
		"plimsoll store import last.backup --etcd https://10.0.0.1:2379 --move")
}

// Run imports the file.
func (cmd *storeImportCmd) Run(ctx context.Context, a *app) (err error) {
	if err := cmd.validate(); err != nil {
		return err
	}
	f, err := backup.Open(ctx, cmd.File)
	if err != nil {
		return err
	}
	if err := coordinator.Check(ctx, f.Load, state.Config{}); err != nil {
		return fmt.Errorf("no coordinator could lead with what %s holds: %w", cmd.File, err)
	}
	if cmd.DryRun && !cmd.used() {
		if _, err := os.Stat(cmd.Data); errors.Is(err, os.ErrNotExist) {
			return cmd.done(a, f)
		}
	}
	st, err := cmd.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	last := a.now()
	err = backup.Restore(ctx, f, st, backup.Options{
		Force: cmd.Force, Move: cmd.Move, DryRun: cmd.DryRun, Progress: func(done, all uint64) {
			if now := a.now(); now.Sub(last) >= progressEvery {
				last = now
				a.notes.printf("%d of %d records\n", done, all)
			}
		},
		Misfit: func(object string) { a.notes.printf("the store cannot take %s\n", object) },
	})
	if err != nil {
		return err
	}
	return cmd.done(a, f)
}

// progressEvery is the time between two lines of progress.
const progressEvery = 2 * time.Second

func (cmd *storeImportCmd) done(a *app, f *backup.File) error {
	content := f.Content()
	return cmd.print(a, content, func(o *output) {
		contentTable(o, a.now(), cmd.File, &content)
		if cmd.DryRun {
			a.notes.printf("the store can take it; nothing was written\n")
			return
		}
		a.notes.printf("imported; start the coordinator: plimsoll coordinator %s\n", cmd.flags())
	})
}

type storeCheckCmd struct {
	formatFlag
	File string `arg:"" help:"File that plimsoll store export wrote."`
}

// Help is the detail of the help text.
func (storeCheckCmd) Help() string {
	return "Every byte is read and compared with the checksum, and all records are loaded as a coordinator would.\n\n" +
		example("plimsoll store check monday.backup")
}

// Run checks the file.
func (cmd *storeCheckCmd) Run(ctx context.Context, a *app) error {
	f, err := backup.Open(ctx, cmd.File)
	if err != nil {
		return err
	}
	if err := coordinator.Check(ctx, f.Load, state.Config{}); err != nil {
		return fmt.Errorf("no coordinator could lead with what %s holds: %w", cmd.File, err)
	}
	content := f.Content()
	return cmd.print(a, content, func(o *output) { contentTable(o, a.now(), cmd.File, &content) })
}

// contentTable prints what a file holds.
func contentTable(o *output, now time.Time, file string, c *backup.Content) {
	columns(o, []string{"FILE", "MADE", "EPOCH", "REVISION", "RECORDS", "EVENTS", "SIZE", "VERSION"}, [][]string{{
		file, ago(now, c.Made.UnixNano()), fmt.Sprint(c.Epoch), fmt.Sprint(c.Revision), fmt.Sprint(c.Records),
		fmt.Sprint(c.Events), plimsoll.FormatQuantity("memory", int64(c.Bytes)), c.Version,
	}})
}
