package gateway

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// Config is what an operator may set. A zero value stands for the default.
type Config struct {
	ID       string            // names the gateway to the leader and in /healthz; needed
	Listen   string            // address to serve; default 127.0.0.1:9080
	Hosts    []string          // further hosts that callers may use for Listen; see transport.Serve
	Access   *transport.Access // who may call Listen, with Grants; required unless that is a socket
	Insecure bool              // allow an address that other machines can reach, although nothing is encrypted

	// LogTokens finds the tokens for agents that listen on TCP.
	LogTokens token.Finder
	// ListenAgents is a further address, for agents alone; default: none. What comes there has the
	// slots and connections of agents.
	ListenAgents string

	BarrierTimeout time.Duration // longest wait of a read for the leader; default 3s
	WriteTimeout   time.Duration // longest wait of a write for the leader; default 30s
	BodyTimeout    time.Duration // in which a request's body must come; default 10s
	BodyRate       int           // bytes a second at which a body may come after BodyTimeout; default 64 KiB
	UnreadTimeout  time.Duration // in which the caller of a stream must read what is sent; default 60s
	// longest time from a request's first byte to its answer's last, streams not counted; default
	// 3m
	AnswerTimeout time.Duration

	HeartbeatInterval time.Duration // what agents are told; default 2s
	NodeTimeout       time.Duration // a node that is silent for so long is reported; default 10s

	PageSize        int // most objects or events in one answer; default 10,000
	MaxRequestBytes int // default 8 MiB
	MaxRequests     int // requests of users under way, streams not counted; default 4,096
	MaxStreams      int // watches and logs of users under way; default 20,000
	MaxLogs         int // logs under way, of MaxStreams; default 1,024
	MaxUserBytes    int // that users' requests under way take; default a sixteenth of the memory, 96 MiB to 1 GiB
	MaxAgentBytes   int // the same of agents; default half of MaxUserBytes, and 64 MiB at least
	MaxExplains     int // explanations, dry runs and capacities asked of the leader at once; default 16
	MaxNodes        int // nodes heard; default 20,000
	MaxAgents       int // agents that connections are kept to; default 256

	// Agents have slots of their own: those that transport.CallerOf tells from users.
	MaxAgentRequests int // requests of agents under way; default 4,096
	MaxAgentStreams  int // watches of agents under way; default 20,480

	// The bounds on connections; see transport.ConnectionsConfig for the defaults.
	MaxConnections      int // of users
	MaxAgentConnections int // of agents
	MaxPeerConnections  int // of users at one IP address of another machine
	// AgentAddresses are networks in which agents may be called beside the addresses that they call
	// from.
	AgentAddresses []netip.Prefix

	// Clock tells how much time went by since some fixed instant, suspension of the machine
	// included; default CLOCK_BOOTTIME.
	Clock func() time.Duration
	// Registry gets the gateway's metrics, and all that is in it is shown at /metrics; default: one
	// with nothing else in it.
	Registry *prometheus.Registry
	// Events tells what happens.
	Events Events
}

// Events tells what happens in a gateway. A nil function is not called. They must not block.
type Events struct {
	Serving func(address string)        // requests are answered from now on
	Fault   func(rpc string, err error) // a fault of ours; the caller sees only that there was one
	// a node's silence was reported to the leader; err if that failed, it is tried again
	NodeSilent func(node string, err error)
	Registered func(node string, inc uint64) // a node registered

	Cut func(rpc, caller string, after time.Duration) // a stream was cut because its caller did not read it for so long
}

// Validate reports the first field that is wrong.
func (c Config) Validate() error {
	c = c.withDefaults()
	if err := plimsoll.ValidateID("gateway.id", c.ID); err != nil {
		return err
	}
	if _, _, err := transport.Split(c.Listen); err != nil {
		return err
	}
	if c.ListenAgents != "" {
		if _, _, err := transport.Split(c.ListenAgents); err != nil {
			return plimsoll.Invalid(
				"listenAgents",
				"%q is not an address; write for example 127.0.0.1:9082 or unix:/run/plimsoll-agents.sock",
				c.ListenAgents,
			)
		}
		if !transport.Loopback(c.ListenAgents) && !c.Insecure {
			return plimsoll.Invalid("listenAgents", "%s can be reached from other machines, and nothing is encrypted: listen on 127.0.0.1, or say that insecure is meant",
				c.ListenAgents)
		}
	}
	if err := transport.ValidateHosts("host", c.Hosts); err != nil {
		return err
	}
	if !transport.Loopback(c.Listen) && !c.Insecure {
		return plimsoll.Invalid("listen", "%s can be reached from other machines, and nothing is encrypted: listen on 127.0.0.1, or say that insecure is meant",
			c.Listen)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"barrierTimeout", c.BarrierTimeout},
		{"writeTimeout", c.WriteTimeout},
		{"bodyTimeout", c.BodyTimeout},
		{"answerTimeout", c.AnswerTimeout},
		{"unreadTimeout", c.UnreadTimeout},
		{"heartbeatInterval", c.HeartbeatInterval},
		{"nodeTimeout", c.NodeTimeout},
	} {
		if d.value < 0 {
			return plimsoll.Invalid("gateway."+d.name, "is negative; give a duration such as 3s")
		}
	}
	if c.NodeTimeout < 2*c.HeartbeatInterval {
		return plimsoll.Invalid(
			"gateway.nodeTimeout", "is %s; give at least twice the heartbeatInterval, which is %s", c.NodeTimeout,
			c.HeartbeatInterval,
		)
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"pageSize", c.PageSize},
		{"maxRequestBytes", c.MaxRequestBytes},
		{"maxUserBytes", c.MaxUserBytes},
		{"maxAgentBytes", c.MaxAgentBytes},
		{"maxRequests", c.MaxRequests},
		{"maxStreams", c.MaxStreams},
		{"maxExplains", c.MaxExplains},
		{"maxNodes", c.MaxNodes},
		{"maxAgents", c.MaxAgents},
		{"maxLogs", c.MaxLogs},
		{"maxAgentRequests", c.MaxAgentRequests},
		{"maxAgentStreams", c.MaxAgentStreams},
		{"maxConnections", c.MaxConnections},
		{"maxAgentConnections", c.MaxAgentConnections},
		{"maxPeerConnections", c.MaxPeerConnections},
		{"bodyRate", c.BodyRate},
	} {
		if n.value < 0 {
			return plimsoll.Invalid("gateway."+n.name, "is negative; give 1 or more, or 0 for the default")
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	setDefault(&c.Listen, "127.0.0.1:9080")
	setDefault(&c.BarrierTimeout, 3*time.Second)
	setDefault(&c.WriteTimeout, 30*time.Second)
	setDefault(&c.BodyTimeout, transport.DefaultBodyTimeout)
	setDefault(&c.BodyRate, transport.DefaultBodyRate)
	setDefault(&c.UnreadTimeout, transport.DefaultUnreadTimeout)
	setDefault(&c.AnswerTimeout, transport.DefaultAnswerTimeout)
	setDefault(&c.HeartbeatInterval, 2*time.Second)
	setDefault(&c.NodeTimeout, 10*time.Second)
	setDefault(&c.PageSize, 10_000)
	setDefault(&c.MaxRequestBytes, 8<<20)
	if c.MaxUserBytes == 0 {
		c.MaxUserBytes = defaultBudget()
	}
	setDefault(&c.MaxAgentBytes, max(c.MaxUserBytes/2, leastBudget*2/3))
	setDefault(&c.MaxRequests, 4096)
	setDefault(&c.MaxStreams, 20_000)
	setDefault(&c.MaxExplains, 16)
	setDefault(&c.MaxNodes, 20_000)
	setDefault(&c.MaxAgents, 256)
	setDefault(&c.MaxLogs, 1024)
	setDefault(&c.MaxAgentRequests, 4096)
	setDefault(&c.MaxAgentStreams, 20_480)
	if c.Clock == nil {
		c.Clock = boottime
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Events.Serving == nil {
		c.Events.Serving = func(string) {}
	}
	if c.Events.Fault == nil {
		c.Events.Fault = func(string, error) {}
	}
	if c.Events.NodeSilent == nil {
		c.Events.NodeSilent = func(string, error) {}
	}
	if c.Events.Registered == nil {
		c.Events.Registered = func(string, uint64) {}
	}
	if c.Events.Cut == nil {
		c.Events.Cut = func(string, string, time.Duration) {}
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
