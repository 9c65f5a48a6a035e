// Package processes keeps a few processes of this machine running: it starts them in order, writes
// their output to files, and starts one again that has ended by itself.
//
//	g := processes.New(processes.Config{Logs: dir, Events: events})
//	err := g.Run(ctx, []processes.Process{...}) // until ctx ends, or one cannot be started
//
// `plimsoll cluster up` uses it for a cluster on one machine. It is no service manager: where
// processes must outlive a terminal, use systemd and the units in deploy/.
//
// A process gets SIGTERM when ctx ends, the last one first, and SIGKILL if it does not end in time.
// It also gets SIGTERM when this process dies. Output goes to NAME.log, which is moved to
// NAME.log.old at LogBytes, so two files of that size are the most that is kept. The cost is one
// goroutine and one pipe a process.
package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// LogBytes is the most that one file of output takes.
const LogBytes = 16 << 20

// Process is a command that is kept running.
type Process struct {
	Name    string // of its file of output, and in events
	Command []string
	Dir     string // in which it runs; empty: that of this process
	// Ready waits until the process serves. The next process is started after it. It may be nil.
	Ready func(ctx context.Context) error
}

// Events are called from several goroutines; nil ones are not called.
type Events struct {
	Started func(name string, pid int)
	// Ended is called when a process has ended by itself, and is started again after a pause. how
	// has the last line of its output.
	Ended func(name string, how string, pause time.Duration)
}

// Config holds the settings of a Group. Zero values are defaults.
type Config struct {
	Logs     string           // directory of the files of output; must exist
	Env      []string         // environment of the processes; nil: that of this one
	Restart  plimsoll.Backoff // pauses before a process is started again; 1 s to 10 s
	Patience time.Duration    // from SIGTERM to SIGKILL; 15 s
	Events   Events
}

// Group runs processes.
type Group struct{ cfg Config }

// New returns a Group. Nothing is started before Run.
func New(cfg Config) *Group {
	if cfg.Restart == (plimsoll.Backoff{}) {
		cfg.Restart = plimsoll.Backoff{First: time.Second, Longest: 10 * time.Second}
	}
	if cfg.Patience == 0 {
		cfg.Patience = 15 * time.Second
	}
	if cfg.Events.Started == nil {
		cfg.Events.Started = func(string, int) {}
	}
	if cfg.Events.Ended == nil {
		cfg.Events.Ended = func(string, string, time.Duration) {}
	}
	return &Group{cfg}
}

// Run starts the processes in order, each once the one before is ready, and keeps them running
// until ctx ends. Then it ends them in the opposite order. It returns an error if one could not be
// started, or did not become ready. all is called when all are ready.
func (g *Group) Run(ctx context.Context, processes []Process, all func()) error {
	var running []*kept
	var failed error
	for _, p := range processes {
		k := &kept{group: g, process: p}
		if failed = k.begin(); failed != nil {
			break
		}
		running = append(running, k)
		if p.Ready == nil {
			continue
		}
		if err := p.Ready(ctx); err != nil {
			if ctx.Err() == nil {
				failed = fmt.Errorf("wait for %s: %w; its output is in %s", p.Name, err, k.path())
			}
			break
		}
	}
	if failed == nil && ctx.Err() == nil {
		all()
		<-ctx.Done()
	}
	for _, k := range slices.Backward(running) {
		failed = errors.Join(failed, k.end())
	}
	return failed
}

// kept is a process that is kept running.
type kept struct {
	group   *Group
	process Process
	log     *output
	cancel  context.CancelFunc
	done    chan struct{} // closed when the process has ended and is not started again
}

func (k *kept) path() string { return filepath.Join(k.group.cfg.Logs, k.process.Name+".log") }

// begin starts the process for the first time.
func (k *kept) begin() (err error) {
	if k.log, err = newOutput(k.path()); err != nil {
		return fmt.Errorf("open the output of %s: %w", k.process.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd, err := k.start(ctx)
	if err != nil {
		cancel()
		return errors.Join(err, k.log.close())
	}
	k.cancel, k.done = cancel, make(chan struct{})
	go func() {
		defer close(k.done)
		k.keep(ctx, cmd)
	}()
	return nil
}

func (k *kept) start(ctx context.Context) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, k.process.Command[0], k.process.Command[1:]...)
	cmd.Dir, cmd.Env = k.process.Dir, k.group.cfg.Env
	cmd.Stdout, cmd.Stderr = k.log, k.log
	// A group of its own keeps the terminal's Ctrl-C away: this process ends the others in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = k.group.cfg.Patience
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", k.process.Name, err)
	}
	k.group.cfg.Events.Started(k.process.Name, cmd.Process.Pid)
	return cmd, nil
}

// steady is the time after which a process counts as one that works.
const steady = time.Minute

// keep waits for the process and starts it again, until ctx ends.
func (k *kept) keep(ctx context.Context, cmd *exec.Cmd) {
	failures, began, err := 0, time.Now(), cmd.Wait()
	for ctx.Err() == nil {
		if time.Since(began) > steady {
			failures = 0
		}
		failures++
		how, pause := "exit status 0", k.group.cfg.Restart.Delay(failures)
		if err != nil {
			how = err.Error()
		}
		if line := k.log.lastLine(); line != "" {
			how += ": " + line
		}
		k.group.cfg.Events.Ended(k.process.Name, how, pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began = time.Now()
		if cmd, err = k.start(ctx); err == nil {
			err = cmd.Wait()
		}
	}
}

// end stops the process and waits for it.
func (k *kept) end() error {
	k.cancel()
	<-k.done
	return k.log.close()
}

// output is a file of output of a bounded size.
type output struct {
	path string

	mu   sync.Mutex // guards the fields below
	file *os.File
	size int64
	last []byte // the end of the last piece that was written, at most lastBytes
}

const lastBytes = 300

func newOutput(path string) (*output, error) {
	o := &output{path: path}
	return o, o.open()
}

func (o *output) open() error {
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	o.file, o.size = f, info.Size()
	return nil
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size > 0 && o.size+int64(len(p)) > LogBytes {
		if err := errors.Join(o.file.Close(), os.Rename(o.path, o.path+".old"), o.open()); err != nil {
			return 0, err
		}
	}
	n, err := o.file.Write(p)
	o.size += int64(n)
	o.last = append(o.last[:0], p[max(0, len(p)-lastBytes):]...)
	return n, err
}

// lastLine returns the last line that was written, or its end.
func (o *output) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.last))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.file.Close()
}
