package gateway

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// DefaultMaxJSONBytes is the default of Config.MaxJSONBytes.
const DefaultMaxJSONBytes = 64 << 20

// DefaultEventStreams is the default of Config.MaxEventStreams.
const DefaultEventStreams = 100

// Config holds the settings of a gateway. A zero value stands for the default. No number may be
// negative.
type Config struct {
	// ID names the gateway to the leader and in /healthz. It is required, and unique in the
	// cluster.
	ID string
	// Listen is the address to serve; default 127.0.0.1:9080.
	Listen string
	// Hosts are further host names that callers may use for Listen; see transport.ServeConfig.
	Hosts []string
	// Access decides who may call Listen; Grants has the rights of its tokens. It is required
	// unless Listen is a unix socket.
	Access *transport.Access
	// Insecure allows addresses that other machines can reach, although nothing is encrypted.
	Insecure bool

	// LogTokens finds the tokens for agents that listen on TCP.
	LogTokens token.Finder
	// ListenAgents is a further address that serves AgentService alone; default: none. Its callers
	// count as agents and use the agents' slots and connections.
	ListenAgents string
	// Relay serves other gateways at ListenReplication; both are set, or neither. The follower of
	// the relay is the gateway's own.
	Relay             *replica.Relay
	ListenReplication string
	// ReplicationAccess decides who may call ListenReplication. It is required unless that is a
	// unix socket.
	ReplicationAccess *transport.Access

	// BarrierTimeout bounds the wait of a read for the leader; default 3s.
	BarrierTimeout time.Duration
	// WriteTimeout bounds the wait of a write for the leader; default 30s.
	WriteTimeout time.Duration
	// BodyTimeout is the time in which a request's body must arrive; default 10s. Each BodyRate
	// bytes that have arrived add a second; default 64 KiB.
	BodyTimeout time.Duration
	BodyRate    int
	// UnreadTimeout is the time in which the caller of a stream must read; default 60s.
	UnreadTimeout time.Duration
	// AnswerTimeout bounds a request from its first byte to the last one of its answer; default 3m.
	// Streams are exempt.
	AnswerTimeout time.Duration

	// Version is the version of the program, which /ws/v1/clusters says; empty: it is not said.
	Version string

	// HeartbeatInterval is the interval at which agents are asked to send heartbeats; default 2s.
	HeartbeatInterval time.Duration
	// NodeTimeout is the silence after which a node is reported to the leader; default 10s. It is
	// at least twice HeartbeatInterval.
	NodeTimeout time.Duration

	// PageSize bounds the objects or events in one answer; default 10,000.
	PageSize int
	// MaxRequestBytes bounds one message, both as sent and inflated; default 8 MiB.
	MaxRequestBytes int
	// MaxRequests bounds the requests of users under way, without streams; default 4,096.
	MaxRequests int
	// MaxStreams bounds the watches and logs of users under way; default 20,000.
	MaxStreams int
	// MaxLogs bounds the logs under way, which count in MaxStreams too; default 1,024.
	MaxLogs int
	// MaxEventStreams bounds the streams of events under /ws/v1, which count in MaxStreams too;
	// default DefaultEventStreams. MaxPeerEventStreams bounds those of one IP address of another
	// machine; default 15.
	MaxEventStreams     int
	MaxPeerEventStreams int
	// EventStates gives the events under /ws/v1 the states of their objects; see rest.Config.
	EventStates bool
	// MaxRenderedBytes bounds the events that are kept as JSON for readers under /ws/v1; default
	// that of rest.Config. When it is full those that were not read for longest are dropped, and
	// rendered again if they are wanted.
	MaxRenderedBytes int
	// MaxAnswerBytes bounds one answer about the state under /ws/v1, before it is compressed;
	// default that of rest.Config. A larger one is refused with 413.
	MaxAnswerBytes int
	// MaxUserBytes bounds the bytes that users' requests under way take; default a sixteenth of the
	// memory, at least 96 MiB and at most 1 GiB.
	MaxUserBytes int
	// MaxAgentBytes is the same bound for agents' requests; default half of MaxUserBytes, and at
	// least 64 MiB.
	MaxAgentBytes int
	// MaxJSONBytes bounds the cache of records in JSON, which answers in JSON are made of; default
	// DefaultMaxJSONBytes. When it is full the oldest ones that were not read lately give way.
	MaxJSONBytes int
	// MaxSharedBytes bounds the cache of whole answers, which readers who ask the same question at
	// the same state share; default a 64th of the memory, at least 16 MiB and at most 64 MiB. When
	// it is full the oldest ones that were not read lately give way.
	MaxSharedBytes int
	// MaxExplains bounds the questions to the leader under way: explanations, dry runs, capacities
	// and plans; default 16.
	MaxExplains int
	// MaxNodes bounds the nodes that are registered at this gateway; default 20,000.
	MaxNodes int
	// MaxAgents bounds the connections that are kept to agents; default 256.
	MaxAgents int

	// MaxAgentRequests bounds the requests of agents under way, without streams; default 4,096.
	// transport.CallerOf tells agents from users.
	MaxAgentRequests int
	// MaxAgentStreams bounds the watches of agents under way; default 20,480.
	MaxAgentStreams int

	// MaxConnections, MaxAgentConnections and MaxPeerConnections bound the connections of users, of
	// agents, and of users at one IP address of another machine. transport.ConnectionsConfig has
	// their defaults.
	MaxConnections      int
	MaxAgentConnections int
	MaxPeerConnections  int
	// AgentAddresses are networks in which agents may be called, beside the addresses from which
	// they call.
	AgentAddresses []netip.Prefix

	// Archive answers questions about jobs that have left the active store; nil: this gateway
	// cannot read them. The caller closes it once Run has returned.
	Archive archive.Reader

	// History answers questions about the past at the gateway's address; nil: they are refused with
	// CodeUnimplemented.
	History *History

	// Clock returns the time since some fixed instant, suspension of the machine included; default
	// CLOCK_BOOTTIME.
	Clock func() time.Duration
	// Registry gets the gateway's metrics, and /metrics shows all that are in it; default: a new
	// one.
	Registry *prometheus.Registry
	// Events are the callbacks of the gateway.
	Events Events
}

// History is a historian in the same process. It bounds what it answers by itself.
type History struct {
	Calls http.Handler // of HistoryService
	Plain http.Handler // of the paths below Root, which are read with GET
	Root  string       // such as /history/v1/
}

// Events are the callbacks of a gateway. A nil function is not called. None may block.
type Events struct {
	// Serving is called when requests are answered from then on.
	Serving func(address string)
	// Fault is called for an error of the gateway's own. The caller learns only that there was one.
	Fault func(rpc string, err error)
	// NodeSilent is called after a node's silence was reported to the leader. A report that failed,
	// with err, is tried again.
	NodeSilent func(node string, err error)
	// Registered is called when a node has registered.
	Registered func(node string, inc uint64)
	// Cut is called when a stream was cut because its caller had not read it for so long.
	Cut func(rpc, caller string, after time.Duration)
}

// Validate reports the first field that is wrong.
func (c Config) Validate() error {
	c = c.withDefaults()
	if err := plimsoll.ValidateID("gateway.id", c.ID); err != nil {
		return err
	}
	if err := c.validateAddresses(); err != nil {
		return err
	}
	if err := c.validateDurations(); err != nil {
		return err
	}
	return c.validateBounds()
}

func (c *Config) validateAddresses() error {
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
			return plimsoll.Invalid("listenAgents", reachable, c.ListenAgents)
		}
	}
	if err := c.validateReplication(); err != nil {
		return err
	}
	if err := transport.ValidateHosts("host", c.Hosts); err != nil {
		return err
	}
	if !transport.Loopback(c.Listen) && !c.Insecure {
		return plimsoll.Invalid("listen", reachable, c.Listen)
	}
	return nil
}

func (c *Config) validateReplication() error {
	if (c.Relay == nil) != (c.ListenReplication == "") {
		return plimsoll.Invalid("listenReplication", "and the relay that is served there are set both, or neither")
	}
	if c.ListenReplication == "" {
		return nil
	}
	if _, _, err := transport.Split(c.ListenReplication); err != nil {
		return plimsoll.Invalid(
			"listenReplication",
			"%q is not an address; write for example 127.0.0.1:9083 or unix:/run/plimsoll-replication.sock",
			c.ListenReplication,
		)
	}
	if !transport.Loopback(c.ListenReplication) && !c.Insecure {
		return plimsoll.Invalid("listenReplication", reachable, c.ListenReplication)
	}
	return nil
}

// reachable is the error text for an address that other machines can reach.
const reachable = "%s can be reached from other machines, and nothing is encrypted: " +
	"listen on 127.0.0.1, or say that insecure is meant"

func (c *Config) validateDurations() error {
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
	return nil
}

func (c *Config) validateBounds() error {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"pageSize", c.PageSize},
		{"maxRequestBytes", c.MaxRequestBytes},
		{"maxUserBytes", c.MaxUserBytes},
		{"maxAgentBytes", c.MaxAgentBytes},
		{"maxJSONBytes", c.MaxJSONBytes},
		{"maxSharedBytes", c.MaxSharedBytes},
		{"maxRequests", c.MaxRequests},
		{"maxStreams", c.MaxStreams},
		{"maxExplains", c.MaxExplains},
		{"maxNodes", c.MaxNodes},
		{"maxAgents", c.MaxAgents},
		{"maxLogs", c.MaxLogs},
		{"maxEventStreams", c.MaxEventStreams},
		{"maxPeerEventStreams", c.MaxPeerEventStreams},
		{"maxRenderedBytes", c.MaxRenderedBytes},
		{"maxAnswerBytes", c.MaxAnswerBytes},
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
	setDefault(&c.MaxJSONBytes, DefaultMaxJSONBytes)
	setDefault(&c.MaxSharedBytes, defaultAnswerBytes())
	setDefault(&c.MaxRequests, 4096)
	setDefault(&c.MaxStreams, 20_000)
	setDefault(&c.MaxExplains, 16)
	setDefault(&c.MaxNodes, 20_000)
	setDefault(&c.MaxAgents, 256)
	setDefault(&c.MaxLogs, 1024)
	setDefault(&c.MaxEventStreams, DefaultEventStreams)
	setDefault(&c.MaxPeerEventStreams, min(15, c.MaxEventStreams))
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
