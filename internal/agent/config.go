package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// Config configures an agent. Every field but Dir and Gateways has a usable zero value.
type Config struct {
	Node     string   // id of the node; empty: the one in Dir, or else the host's name
	Dir      string   // the agent's own directory; one agent per directory
	Gateways []string // addresses of gateways; the node's id says with which one it begins, a failure leads to the next

	Listen    string   // address of the log service; empty: unix:DIR/agent.sock
	Advertise string   // the address of Listen for gateways; empty: Listen
	Hosts     []string // further hosts that callers may use for Listen; see transport.Serve
	Insecure  bool     // allow Listen to be reached from other machines without encryption

	Access *transport.Access // callers that Listen accepts; required unless Listen is a socket
	// Tokens finds the token for a gateway; nil: none is sent.
	Tokens func(gateway string) (from *token.Source)

	Capacity   plimsoll.Resources // amounts that replace the measured ones, and custom resources
	Attributes map[string]string  // attributes that extend or replace the measured ones

	// Facts are the node's facts for placement. LastBoot and Networks are added to the measured
	// ones. A MaxTasks of 0 means DefaultMaxTasks.
	Facts plimsoll.NodeFacts
	// Networks maps names of networks to their interfaces; empty: the interface has the network's
	// name.
	Networks map[string]string

	// HeartbeatInterval is used unless a gateway names another; 0: DefaultHeartbeatInterval.
	HeartbeatInterval time.Duration
	// CallTimeout bounds one call to a gateway or the supervisor; 0: DefaultCallTimeout.
	CallTimeout time.Duration

	// LeaveTimeout bounds the time for leaving after ctx has ended; 0: the agent does not leave.
	LeaveTimeout time.Duration

	QOS QOSConfig // the node's QoS loop

	// Users of tasks, if the supervisor is root; only for a message, because the Executor applies
	// them.
	Users    executor.Users
	TaskPids int64 // most processes and threads of a task at once; 0: DefaultTaskPids

	Logs LogBounds // how long the logs of attempts are kept
}

// LogBounds bound what attempts leave on a node when they have ended: their logs and records, and
// the files of their tasks.
type LogBounds struct {
	// Bytes of all attempts together, each of them at least AttemptBytes; 0: DefaultLogsBytes. When
	// there are more, the oldest attempts that succeeded go first, and then the oldest others.
	Bytes int64
	// Age is the time after their end for which attempts that succeeded are kept; 0:
	// DefaultLogsAge.
	Age time.Duration
	// FailedAge is that of all others, at least Age; 0: DefaultFailedLogsAge, or Age if that is
	// more.
	FailedAge time.Duration
}

// AttemptBytes are counted for an attempt whose files are smaller. They stand for its names and
// inodes, its uid, and its place in the agent's memory.
const AttemptBytes = int64(64 << 10)

// Defaults for fields of Config that are zero.
const (
	DefaultHeartbeatInterval = 3 * time.Second
	DefaultCallTimeout       = 15 * time.Second
	DefaultMaxTasks          = int32(256)
	DefaultTaskPids          = int64(4096)
	DefaultLogsBytes         = int64(2 << 30)
	DefaultLogsAge           = 7 * 24 * time.Hour
	DefaultFailedLogsAge     = 30 * 24 * time.Hour
)

// Deps are the agent's dependencies.
type Deps struct {
	Executor Executor // the node's supervisor
	Events   Events   // callbacks for events
	// Retire ends the supervisor if none of its attempts runs, and returns the number of running
	// attempts. It is called when the agent leaves and uses Executor no more. If no supervisor
	// answers, the error is CodeUnavailable. nil: the supervisor stays.
	Retire func(ctx context.Context) (running int, err error)
	// Metrics also gets the agent's metrics, which Config.Listen always serves at /metrics.
	Metrics prometheus.Registerer
}

// CgroupNone is the value of the node attribute cgroup when tasks run without limits.
const CgroupNone = "none"

// DiskNotMeasured is the value of the node attribute disk when the disk usage of tasks is not
// measured.
const DiskNotMeasured = "not measured"

// maxSocketPath is the longest path of a unix socket that the kernel accepts.
const maxSocketPath = 107

// Validate reports the first field that is wrong, and names the fix.
func (c *Config) Validate() error {
	if c.Dir == "" {
		return plimsoll.Invalid("dir", "is empty; name the directory that the agent keeps its state in")
	}
	if len(c.Gateways) == 0 {
		return plimsoll.Invalid(
			"gateways", "is empty; give the address of at least one gateway, such as 127.0.0.1:9080",
		)
	}
	for i, address := range c.Gateways {
		if _, _, err := transport.Split(address); err != nil {
			return plimsoll.Invalid(fmt.Sprintf("gateways[%d]", i), "%s", err)
		}
	}
	if c.Node != "" {
		if err := plimsoll.ValidateID("node", c.Node); err != nil {
			return err
		}
	}
	if c.Listen != "" {
		if _, _, err := transport.Split(c.Listen); err != nil {
			return plimsoll.Invalid("listen", "%s", err)
		}
		if !c.Insecure && !transport.Loopback(c.Listen) {
			return plimsoll.Invalid("listen", "%s can be reached from other machines, and the log service is not encrypted: use a loopback "+
				"address, or allow it by setting insecure", c.Listen)
		}
	}
	if err := transport.ValidateHosts("host", c.Hosts); err != nil {
		return err
	}
	if err := c.Capacity.Validate("capacity"); err != nil {
		return err
	}
	if err := c.validateFacts(); err != nil {
		return err
	}
	if err := c.QOS.validate(c.Dir); err != nil {
		return err
	}
	return c.validateBounds()
}

// validateFacts also checks the named networks. A trait must not have an empty list of words,
// because no task could ask for it.
func (c *Config) validateFacts() error {
	facts := c.Facts
	facts.Networks = maps.Clone(facts.Networks)
	if facts.Networks == nil {
		facts.Networks = make(map[string]bool, len(c.Networks))
	}
	for name := range c.Networks {
		facts.Networks[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(facts.Traits)) {
		if t := facts.Traits[name]; t.Words != nil && len(t.Words) == 0 {
			return plimsoll.Invalid("traits."+name, "holds no word; give at least one, or true or false for a flag")
		}
	}
	return facts.Validate("")
}

func (c *Config) validateBounds() error {
	if c.HeartbeatInterval < 0 {
		return plimsoll.Invalid("heartbeatInterval", "is negative; give a duration such as 3s")
	}
	if c.CallTimeout < 0 {
		return plimsoll.Invalid("callTimeout", "is negative; give a duration such as 15s")
	}
	if c.LeaveTimeout < 0 {
		return plimsoll.Invalid("leaveTimeout", "is negative; give a duration such as 5s")
	}
	if c.TaskPids < 0 {
		return plimsoll.Invalid(
			"taskPids", "is negative; give the most processes and threads that a task may have at once",
		)
	}
	return c.Logs.validate()
}

func (b *LogBounds) validate() error {
	switch {
	case b.Bytes != 0 && b.Bytes < AttemptBytes:
		return plimsoll.Invalid(
			"logs.bytes", "is %d; give at least %d, as one attempt counts", b.Bytes, AttemptBytes,
		)
	case b.Age < 0:
		return plimsoll.Invalid("logs.age", "is negative; give a duration such as 168h")
	case b.FailedAge < 0:
		return plimsoll.Invalid("logs.failedAge", "is negative; give a duration such as 720h")
	case b.FailedAge != 0 && b.FailedAge < cmp.Or(b.Age, DefaultLogsAge):
		return plimsoll.Invalid("logs.failedAge", "is %v, less than the %v for which attempts that succeeded are kept; give as much or more",
			b.FailedAge, cmp.Or(b.Age, DefaultLogsAge))
	}
	return nil
}

func (b LogBounds) withDefaults() LogBounds {
	b.Bytes, b.Age = cmp.Or(b.Bytes, DefaultLogsBytes), cmp.Or(b.Age, DefaultLogsAge)
	b.FailedAge = cmp.Or(b.FailedAge, max(DefaultFailedLogsAge, b.Age))
	return b
}

// withDefaults fills in fields that are zero. Dir becomes absolute, because other processes get
// paths below it.
func (c Config) withDefaults() (Config, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("find the directory %s: %w", c.Dir, err)
	}
	c.Dir = dir
	if c.Listen == "" {
		c.Listen = "unix:" + filepath.Join(dir, "agent.sock")
	}
	if network, path, err := transport.Split(c.Listen); err == nil && network == "unix" && len(path) > maxSocketPath {
		return c, plimsoll.Invalid(
			"listen", "%q is longer than the %d characters that the kernel takes; choose a shorter path", path,
			maxSocketPath,
		)
	}
	for _, address := range []struct{ field, value string }{{"listen", c.Listen}, {"advertise", c.Advertise}} {
		if err := c.checkSocket(address.field, address.value); err != nil {
			return c, err
		}
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = DefaultCallTimeout
	}
	if c.Facts.MaxTasks == 0 {
		c.Facts.MaxTasks = DefaultMaxTasks
	}
	if c.TaskPids == 0 {
		c.TaskPids = DefaultTaskPids
	}
	c.Logs = c.Logs.withDefaults()
	return c, nil
}

// checkSocket reports whether gateways would call a unix socket: only one in the agent's directory.
func (c *Config) checkSocket(field, address string) error {
	network, path, err := transport.Split(address)
	if err != nil || network != "unix" {
		return nil //nolint:nilerr // the form of the address is checked elsewhere
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("find the socket %s: %w", address, err)
	}
	if filepath.Dir(path) != c.Dir {
		return plimsoll.Invalid(
			field,
			"%s is not in the agent's directory, and gateways would not call it; choose a path in %s, or an address of TCP",
			address, c.Dir,
		)
	}
	return nil
}

// hostID makes a node id from the host's name, without its domain.
func hostID() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the host's name (give the node an id instead): %w", err)
	}
	name, _, _ = strings.Cut(name, ".")
	if err := plimsoll.ValidateID("node", name); err != nil {
		return "", errors.Join(
			plimsoll.Invalid("node", "the host's name cannot be used as an id; give the node one"), err,
		)
	}
	return name, nil
}
