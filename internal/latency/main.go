// Command latency measures the effect of the QoS agent on a server that must answer soon and
// shares its machine with batch work. It prints the table of docs/qos-latency.md. `make
// qos-latency` runs it. It needs root, control groups, and a machine that is otherwise quiet.
//
// One server process does 2 ms of processor work a request and gets requests at random instants,
// 60 a second. Beside it four burner processes, each a task of its own, use all the processor time
// that they get.
//
// Each shuffled round has four modes: burners stopped, agent off, an agent that only lowers
// quotas, and an agent with the whole ladder. With -others, programs that are no tasks use some of
// the machine all the time.
//
// The decisive figure is how long the server's threads waited for a processor per request
// (/proc/PID/task/*/schedstat). The kernel counts it exactly, while percentiles of a few hundred
// requests are noise.
//
// Cost: a run takes about rounds × 4 × 7 seconds. The command calls qos/nodeqos as the agent does;
// no package calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	work      = 2 * time.Millisecond // of processor time a request
	perSecond = 60
	burners   = 4
)

func main() {
	rounds := flag.Int("rounds", 6, "how often each mode is measured")
	measure := flag.Duration("measure", 5*time.Second, "how long it is measured each time")
	settle := flag.Duration("settle", 2*time.Second, "how long the agent gets before that")
	others := flag.Float64("others", 0, "cores that programs use which are no tasks")
	seed := flag.Uint64("seed", 1, "of the order of the modes and of the requests")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "serve":
		err = serve(flag.Arg(1))
	case "burn":
		burn()
	case "":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(
			ctx,
			&plan{
				rounds: *rounds, measure: *measure, settle: *settle, others: *others,
				random: rand.New(rand.NewPCG(*seed, 0)),
			},
			os.Stdout,
		)
		stop()
	default:
		err = fmt.Errorf("there is no %q; run it without arguments", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

// burn uses a processor until it is killed.
func burn() {
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
	for x := 1.0; x > 0; { // true for ever
		x = math.Sqrt(x + 1)
	}
}

// serve answers each byte with a byte, after a fixed amount of processor work.
func serve(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := answer(conn); err != nil && !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "latency: answer:", err)
			}
		}()
	}
}

func answer(conn net.Conn) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	var b [1]byte
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		spin()
		if _, err := conn.Write(b[:]); err != nil {
			return err
		}
	}
}

// spin uses a fixed processor time of its own thread, however long that takes.
func spin() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for begin := threadTime(); threadTime()-begin < work; {
	}
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic("the kernel has no clock of a thread: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// child starts this program again as one of the measured processes. It dies with this process.
func child(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// waited returns how long the runnable threads of a process have waited for a processor.
func waited(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, fmt.Errorf("process %d has no schedstat", pid))
	}
	sum := time.Duration(0)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(data))
		if len(fields) < 2 {
			return 0, fmt.Errorf("%s holds %q", file, data)
		}
		ns, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// idleTime returns the processor time in which the machine was idle.
func idleTime() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	sum := int64(0)
	for _, field := range fields[4:6] { // idle and iowait, in hundredths of a second
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond, nil
}

// client sends requests. It keeps its connections, so that the work is measured and not the
// connecting.
type client struct {
	path string
	idle chan net.Conn
}

func newClient(path string) *client { return &client{path: path, idle: make(chan net.Conn, 256)} }

// ask sends requests at random instants for a while and returns their durations. A request does
// not wait for the previous one.
func (c *client) ask(ctx context.Context, random *rand.Rand, last time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, last)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var group errgroup.Group
	group.SetLimit(cap(c.idle))
	next := time.Now()
	for {
		next = next.Add(time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)))
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			err := group.Wait()
			return took, err
		case <-timer.C:
		}
		group.Go(func() error {
			begin := time.Now()
			if err := c.request(); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begin))
			return nil
		})
	}
}

func (c *client) request() (err error) {
	var conn net.Conn
	select {
	case conn = <-c.idle:
	default:
		if conn, err = net.Dial("unix", c.path); err != nil {
			return err
		}
	}
	var b [1]byte
	if _, err = conn.Write(b[:]); err == nil {
		_, err = io.ReadFull(conn, b[:])
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c.idle <- conn
	return nil
}

func (c *client) close() error {
	close(c.idle)
	var errs []error
	for conn := range c.idle {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}
