package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// roleVariable makes the test binary one process of a benchmark, with arguments of its own. With
// profilesVariable, a directory, each process writes its processor profile there.
const (
	roleVariable      = "PLIMSOLL_BENCH_ROLE"
	argumentsVariable = "PLIMSOLL_BENCH_ARGUMENTS"
	profilesVariable  = "PLIMSOLL_BENCH_PROFILES"
)

// answered begins a line of a process that its benchmark reads.
const answered = "@ "

// benchRole is a process of a benchmark. It answers each line of its input with one line.
type benchRole struct {
	b     *testing.B
	pid   int
	first string // the answer that it begins with
	in    io.WriteCloser
	lines *bufio.Scanner
	end   func()
}

// startRole starts this binary as a process of a benchmark, and waits until it has begun.
func startRole(b *testing.B, role string, arguments ...string) *benchRole {
	b.Helper()
	args := []string{"-test.run=^TestRoleOfABenchmark$", "-test.timeout=1h"}
	if dir := os.Getenv(profilesVariable); dir != "" {
		name := strings.ReplaceAll(b.Name(), "/", "_") + "-" + role + ".pprof"
		args = append(args, "-test.cpuprofile="+filepath.Join(dir, name))
	}
	cmd := exec.Command(os.Args[0], args...) //nolint:gosec // it is this binary
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argumentsVariable+"="+strings.Join(arguments, ","))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	r := &benchRole{b: b, pid: cmd.Process.Pid, in: in, lines: bufio.NewScanner(out)}
	r.end = sync.OnceFunc(func() {
		_ = in.Close() // the process ends with its input
		for r.lines.Scan() {
			continue // what it still says
		}
		if err := cmd.Wait(); err != nil {
			b.Errorf("the process %s: %v", role, err)
		}
	})
	b.Cleanup(r.end)
	r.first = r.read()
	return r
}

func (r *benchRole) read() string {
	r.b.Helper()
	for r.lines.Scan() {
		if answer, ok := strings.CutPrefix(r.lines.Text(), answered); ok {
			return answer
		}
	}
	r.b.Fatal("a process of the benchmark has ended")
	return ""
}

// ask sends a line, and returns the numbers that the process answers.
func (r *benchRole) ask(line string) (numbers []float64) {
	r.b.Helper()
	if _, err := fmt.Fprintln(r.in, line); err != nil {
		r.b.Fatal(err)
	}
	for field := range strings.FieldsSeq(r.read()) {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			r.b.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// TestRoleOfABenchmark is a process of a benchmark, until its input ends.
func TestRoleOfABenchmark(t *testing.T) {
	role, arguments := os.Getenv(roleVariable), strings.Split(os.Getenv(argumentsVariable), ",")
	switch role {
	case "":
		t.Skip("it is a process of a benchmark")
	case "bare":
		bareRole(t)
	case "gateway":
		gatewayRole(t, arguments)
	case "watchers":
		watchersRole(t, arguments)
	case "agents":
		agentsRole(t, arguments)
	case "leader":
		leaderRole(t, arguments)
	case "relay":
		relayRole(t, arguments)
	case "readers":
		readersRole(t, arguments)
	default:
		t.Fatalf("there is no role %q", role)
	}
}

// say answers the benchmark.
func say(numbers ...any) {
	fmt.Println("\n" + answered + strings.TrimSuffix(fmt.Sprintln(numbers...), "\n"))
}

// obey answers each line of the input with the numbers that a function returns for it.
func obey(answer func(line string) []any) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		say(answer(lines.Text())...)
	}
}

// gatewayRole serves a gateway of a leader. Its arguments are its id and the leader's address. It
// says its address, and then how much memory it takes.
func gatewayRole(t *testing.T, arguments []string) {
	follower, err := replica.NewFollower(replica.FollowerConfig{Gateway: arguments[0], Leader: arguments[1]})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = follower.Run(ctx) }) // it ends with ctx
	if err := follower.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, Config{
		ID: arguments[0], Listen: "127.0.0.1:0", Access: transport.AnyCaller(),
		MaxConnections: 10_000, MaxPeerConnections: 10_000,
		Events: Events{Serving: func(a string) { say(a) }},
	}, follower)
	group.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	obey(func(string) []any { return memoryNow() })
	cancel()
	group.Wait()
}

// memoryNow returns the bytes of the live heap, of the stacks and of the resident memory, and the
// number of goroutines. The process has given back what it could by then.
func memoryNow() []any {
	runtime.GC()
	debug.FreeOSMemory() // which collects once more: the first one leaves the objects of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return []any{m.HeapAlloc, m.StackInuse, residentBytes(), runtime.NumGoroutine()}
}

// residentBytes is the memory of this process that is resident.
func residentBytes() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseUint(strings.Fields(string(data))[1], 10, 64) // the kernel writes numbers
	return pages * uint64(os.Getpagesize())
}
