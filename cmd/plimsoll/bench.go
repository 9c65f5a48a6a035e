package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/gatewaybench"
)

type benchCmd struct {
	Gateway benchGatewayCmd `cmd:"" help:"Measure a gateway beside a leader that encodes each record at each request."`
	Serve   benchServeCmd   `cmd:"" hidden:"" help:"Serve as a process of a measurement, which starts it."`
}

// Help is the detail of the help text.
func (benchCmd) Help() string { return example("plimsoll bench gateway") }

type benchGatewayCmd struct {
	Duration    time.Duration `help:"How long each figure is measured. The whole takes about 25 times as long." default:"2s"`
	Load        []int         `help:"Rates of requests, in percent of the rate that the leader can do (25,90,115,200)." default:"25,90,115,200" placeholder:"PERCENT"`
	Connections []int         `help:"Numbers of connections for the comparison with a bare net/http handler (16,64)." default:"16,64" placeholder:"N"`
	formatFlag
}

// Help is the detail of the help text.
func (benchGatewayCmd) Help() string {
	return "It starts a leader, a gateway and a bare net/http server on free ports of this machine, " +
		"and stops them at the end. No cluster is needed and none is touched. An answer is a list of " +
		"100 records in 256 KiB.\n\n" +
		"The first table shows latencies at rates up to and beyond the rate that the leader can do. A request " +
		"is sent at its planned instant, whether those before it were answered or not, and its latency counts " +
		"from that instant. CPU/REQ is the processor time of the server's process for each answer. " +
		"LEADER'S CPU/REQ is what the leader spends beside a gateway, on syncs. " +
		"A request without an answer after twice the duration counts as unanswered.\n\n" +
		"The last table compares the gateway with a bare net/http handler that writes the same bytes.\n\n" +
		"The processes share this machine with the clients, so close other programs before you compare " +
		"figures. Ratios of one run hold better than figures of different runs.\n\n" +
		example("plimsoll bench gateway", "plimsoll bench gateway --duration 10s --load 50,100",
			"plimsoll bench gateway -o json | jq '.bare[].ratio'")
}

// Run measures and prints the report.
func (cmd *benchGatewayCmd) Run(ctx context.Context, a *app) error {
	if cmd.Duration <= 0 {
		return plimsoll.Invalid("--duration", "is %s; give a duration such as 2s", cmd.Duration)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start the servers: %w", err)
	}
	report, err := gatewaybench.Run(ctx, gatewaybench.Config{
		Server: []string{self, "bench", "serve"}, Duration: cmd.Duration, Loads: cmd.Load, Connections: cmd.Connections,
		Tell: func(text string) { a.notes.printf("%s\n", text) },
	})
	if err != nil {
		return err
	}
	return cmd.print(a, report, func(o *output) { printGatewayReport(o, report) })
}

func printGatewayReport(o *output, r *gatewaybench.Report) {
	o.printf("Lists of %d records, %d bytes, on %s.\n", r.Records, r.AnswerBytes, r.Machine)
	o.printf("The leader that encodes each record at each request can do %.0f requests a second.\n\n", r.Capacity)
	rows := make([][]string, len(r.Loads))
	for i, l := range r.Loads {
		rows[i] = []string{
			fmt.Sprintf("%d %%", l.Percent), fmt.Sprintf("%.0f", l.Rate), l.Served,
			inMilliseconds(l.P50), inMilliseconds(l.P80), inMilliseconds(l.P99),
			inMicroseconds(l.CPU), inMicroseconds(l.Leader), fmt.Sprint(l.Answered), fmt.Sprint(l.Unanswered),
		}
	}
	columns(o, []string{
		"LOAD", "REQ/S", "SERVED BY", "P50", "P80", "P99", "CPU/REQ", "LEADER'S CPU/REQ", "ANSWERED", "UNANSWERED",
	}, rows)
	b := &r.Barrier
	o.printf("\nWithout other load a strict read takes %s, an eventual one %s: %s more in the median of %d pairs.\n\n",
		inMilliseconds(b.Strict), inMilliseconds(b.Eventual), inMilliseconds(b.Over), b.Reads)
	rows = make([][]string, len(r.Bare))
	for i, b := range r.Bare {
		rows[i] = []string{
			fmt.Sprint(b.Connections), b.Served,
			inMicroseconds(b.CPU), inMicroseconds(b.Bare), fmt.Sprintf("%.2f", b.Ratio),
		}
	}
	columns(o, []string{"CONNECTIONS", "SERVED BY", "CPU/REQ", "BARE NET/HTTP", "RATIO"}, rows)
}

func inMilliseconds(ms float64) string {
	if ms >= 100 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.3g ms", ms)
}

func inMicroseconds(us float64) string {
	if us == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f µs", us)
}

type benchServeCmd struct {
	Role   string `arg:"" help:"leader, gateway or bare."`
	Leader string `help:"Address that a gateway follows." placeholder:"ADDRESS"`
}

// Help is the detail of the help text.
func (benchServeCmd) Help() string { return example("plimsoll bench serve leader") }

// Run serves until the input ends.
func (cmd *benchServeCmd) Run(ctx context.Context, a *app) error {
	server := gatewaybench.Server{Role: cmd.Role, Leader: cmd.Leader}
	return server.Serve(ctx, a.in, addressLines{a.out})
}

// addressLines writes to an output.
type addressLines struct{ o *output }

// Write implements io.Writer.
func (w addressLines) Write(p []byte) (int, error) {
	w.o.printf("%s", p)
	return len(p), w.o.failure()
}
