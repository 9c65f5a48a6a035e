package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
)

// Names of programs that only tests have: roles whose bounds are small and whose clock a file
// steps. Their packages are those of the real roles.
const (
	steppedCoordinator = "plimsoll-stepped-coordinator"
	smallGateway       = "plimsoll-small-gateway"
)

// Bounds of a small gateway. A snapshot of the state is larger than either.
const (
	smallHistory = 64 << 10
	smallLog     = 32 << 10
)

// clockOf returns the step that a file asks of a clock. Without the file there is none.
func clockOf(path string) time.Duration {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	step, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		panic(err) // the file was written by stepClock, in one piece
	}
	return time.Duration(step)
}

// stepClock steps the clock that a file controls.
func stepClock(t testing.TB, path string, step time.Duration) {
	t.Helper()
	next := path + ".new"
	err := os.WriteFile(next, []byte(strconv.FormatInt(int64(step), 10)), 0o600)
	if err = errors.Join(err, os.Rename(next, path)); err != nil {
		t.Fatal(err)
	}
}

// testRole runs a role until it is stopped.
func testRole(run func(ctx context.Context, log *slog.Logger) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// killer kills this process behind a step of archiving. A file says at which: the step, how many of
// its kind come before, and a pause in nanoseconds. Without the file nothing happens.
func killer(path string) func(coordinator.ArchiveStep) {
	before := map[string]int{}
	return func(step coordinator.ArchiveStep) {
		var at string
		var count int
		var pause time.Duration
		plan, err := os.ReadFile(path)
		if err != nil {
			return
		}
		if _, err := fmt.Sscan(string(plan), &at, &count, &pause); err != nil {
			panic(err) // the file was written in one piece
		}
		if at != string(step) {
			return
		}
		if before[at]++; before[at] <= count {
			return
		}
		end := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) } // it does not return
		if pause == 0 {
			end()
		}
		time.AfterFunc(pause, end)
	}
}

// runSteppedCoordinator is the main function of a coordinator whose wall clock steps, and that can
// be told to die at a step of archiving.
func runSteppedCoordinator() {
	data := flag.String("data", "", "directory of the store")
	listen := flag.String("listen", "", "address for gateways")
	clock := flag.String("clock", "", "file with the step of the clock")
	keep := flag.Duration("keep-ended", 0, "how long archived jobs stay in the state")
	plan := flag.String("plan", "", "file with the step of archiving to die at")
	flag.Parse()
	testRole(func(ctx context.Context, log *slog.Logger) error {
		events, archived := dev.CoordinatorEvents(log), dev.ArchiveConfig{}
		events.ArchiveStep = killer(*plan)
		c, err := coordinator.New(coordinator.Config{
			Listen: *listen, Events: events, Archive: archived.Coordinator(*data),
			State: state.Config{KeepEnded: int64(*keep)},
			Now:   func() int64 { return time.Now().Add(clockOf(*clock)).UnixNano() },
		}, func(context.Context) (store.Store, error) { return pebble.Open(pebble.Config{Dir: *data, Logger: log}) })
		if err != nil {
			return err
		}
		return c.Run(ctx)
	})
}

// runSmallGateway is the main function of a gateway that keeps few changes, with a clock that
// steps.
func runSmallGateway() {
	id := flag.String("id", "", "name")
	leader := flag.String("leader", "", "address of the coordinator or a relay")
	listen := flag.String("listen", "", "address to serve")
	replication := flag.String("listen-replication", "", "address for gateways")
	clock := flag.String("clock", "", "file with the step of the clock")
	archived := flag.String("archive", "", "file of the archive")
	old := flag.String("old-archive", "", "answer from an old copy of the archive, whose mark is told or hidden")
	flag.Parse()
	testRole(func(ctx context.Context, log *slog.Logger) error {
		reader := archive.Reader(sqlite.OpenReader(*archived))
		defer func() { _ = reader.Close() }() // it has only read
		if *old != "" {
			reader = &oldArchive{Reader: reader, hides: *old == "hidden"}
		}
		f, err := replica.NewFollower(replica.FollowerConfig{
			Gateway: *id, Leader: *leader, HistoryBytes: smallHistory, Events: dev.FollowerEvents(log),
		})
		if err != nil {
			return err
		}
		cfg := gateway.Config{
			ID: *id, Listen: *listen, ListenReplication: *replication, Events: dev.GatewayEvents(log), Archive: reader,
			Clock: func() time.Duration { return sinceBoot() + clockOf(*clock) },
		}
		if *replication != "" {
			if cfg.Relay, err = replica.NewRelay(f, replica.RelayConfig{RetainBytes: smallLog}); err != nil {
				return err
			}
		}
		g, err := gateway.New(cfg, f)
		if err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return f.Run(ctx) })
		group.Go(func() error { return g.Run(ctx) })
		return group.Wait()
	})
}

func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}
