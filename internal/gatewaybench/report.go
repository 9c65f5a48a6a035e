package gatewaybench

import (
	"fmt"
	"runtime"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Config holds the settings of a run. A zero value stands for the default.
type Config struct {
	// Server is the command that runs Serve; Run appends the role and its flags. It is required.
	Server []string
	// Duration is how long each figure is measured; default 2s.
	Duration time.Duration
	// Loads are the rates, in percent of the rate that the leader can do; default 25, 90, 115, 200.
	Loads []int
	// Connections are the numbers of connections for the comparison with a bare handler; default 16
	// and 64.
	Connections []int
	// Tell is called with a line of progress; nil: nobody is told. It must not block.
	Tell func(text string)
}

// The bounds of a Config.
const (
	leastDuration  = 100 * time.Millisecond
	mostDuration   = 10 * time.Minute
	mostLoad       = 1000 // percent
	mostConns      = 1024
	mostRequests   = 20_000_000 // planned for one figure: 480 MB
	defaultSeconds = 2
)

// Validate reports the first field that is wrong.
func (c Config) Validate() error {
	c = c.withDefaults()
	if len(c.Server) == 0 {
		return plimsoll.Invalid("server", "is missing; give the command that runs a server")
	}
	if c.Duration < leastDuration || c.Duration > mostDuration {
		return plimsoll.Invalid("--duration", "is %s; give from 100ms to 10m", c.Duration)
	}
	for _, load := range c.Loads {
		if load < 1 || load > mostLoad {
			return plimsoll.Invalid("--load", "is %d; give percents from 1 to %d", load, mostLoad)
		}
	}
	for _, n := range c.Connections {
		if n < 1 || n > mostConns {
			return plimsoll.Invalid("--connections", "is %d; give numbers from 1 to %d", n, mostConns)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Duration == 0 {
		c.Duration = defaultSeconds * time.Second
	}
	if len(c.Loads) == 0 {
		c.Loads = []int{25, 90, 115, 200}
	}
	if len(c.Connections) == 0 {
		c.Connections = []int{16, 64}
	}
	if c.Tell == nil {
		c.Tell = func(string) {}
	}
	return c
}

// Report holds all figures of a run.
type Report struct {
	Machine     string  `json:"machine"`
	Records     int     `json:"records"`           // of an answer
	AnswerBytes int     `json:"answerBytes"`       // of a gateway's answer
	Capacity    float64 `json:"capacityPerSecond"` // requests a second that the leader can do
	Loads       []Load  `json:"loads"`
	Barrier     Barrier `json:"barrier"`
	Bare        []Bare  `json:"bare"`
}

// The servers of Load.
const (
	LeaderEncodes   = "leader encodes"
	GatewayStrict   = "gateway, strict"
	GatewayEventual = "gateway, eventual"
)

// Load is one server at one rate of requests.
type Load struct {
	Percent int     `json:"percent"`       // of Report.Capacity
	Rate    float64 `json:"ratePerSecond"` // of the planned requests
	Served  string  `json:"served"`
	P50     float64 `json:"p50Ms"` // from the planned instant to the last byte
	P80     float64 `json:"p80Ms"`
	P99     float64 `json:"p99Ms"`
	// CPU is the processor time of the server's process for an answer. Leader is that of the leader
	// beside a gateway.
	CPU      float64 `json:"cpuMicros"`
	Leader   float64 `json:"leaderCpuMicros,omitempty"`
	Answered int     `json:"answered"`
	// Unanswered requests were given up when the time of the figure had passed twice. They count in
	// the percentiles with the time until then.
	Unanswered int `json:"unanswered"`
}

// Barrier is the wait of a strict read, one read at a time.
type Barrier struct {
	Reads    int     `json:"reads"` // of each sort
	Strict   float64 `json:"strictMs"`
	Eventual float64 `json:"eventualMs"`
	Over     float64 `json:"overMs"` // median of the differences
}

// Bare is the processor time of a gateway and of a bare handler for a request, each the median of
// several turns.
type Bare struct {
	Connections int     `json:"connections"`
	Served      string  `json:"served"`
	CPU         float64 `json:"cpuMicros"`
	Bare        float64 `json:"bareCpuMicros"`
	Ratio       float64 `json:"ratio"` // median of the turns' ratios
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}
