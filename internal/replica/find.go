package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

const (
	// maxPlaces bounds the addresses at which a follower looks for the leader.
	maxPlaces = 32
	// lookupTimeout bounds the look-up of a name.
	lookupTimeout = 2 * time.Second
	// dnsPrefix begins a name that stands for all of its addresses.
	dnsPrefix = "dns:"
)

// Finder finds the addresses at which the leader may be. At most 32 are used.
type Finder interface {
	Find(ctx context.Context) ([]string, error)
}

// ParseFinder reads addresses, separated by commas. Each is one as package transport reads it, or
// dns:NAME:PORT, which stands for all addresses of the name. Names are looked up at each Find.
func ParseFinder(text string) (Finder, error) {
	var places []string
	for _, place := range strings.Split(text, ",") {
		place = strings.TrimSpace(place)
		address, isName := strings.CutPrefix(place, dnsPrefix)
		if _, _, err := transport.Split(address); err != nil || isName && strings.HasPrefix(address, "unix:") {
			return nil, plimsoll.Invalid("leader",
				"%q is no address; write for example 10.0.0.1:9081, unix:/run/plimsoll.sock or dns:leader.internal:9081",
				place)
		}
		places = append(places, place)
	}
	if len(places) > maxPlaces {
		return nil, plimsoll.Invalid("leader", "has %d addresses; give at most %d", len(places), maxPlaces)
	}
	return addressList{places, net.DefaultResolver}, nil
}

// addressList holds addresses, and names of addresses.
type addressList struct {
	places   []string
	resolver *net.Resolver
}

// Find implements Finder. An error of one name is returned only if nothing else is found.
func (l addressList) Find(ctx context.Context) (found []string, err error) {
	for _, place := range l.places {
		address, isName := strings.CutPrefix(place, dnsPrefix)
		if !isName {
			found = append(found, place)
			continue
		}
		at, lookupErr := l.lookup(ctx, address)
		found, err = append(found, at...), errors.Join(err, lookupErr)
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, err
}

// lookup returns all addresses of a name with a port.
func (l addressList) lookup(ctx context.Context, address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("look up the leader: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := l.resolver.LookupHost(ctx, host)
	if err != nil {
		return nil, &plimsoll.Error{Code: plimsoll.CodeUnavailable, Op: "look up the leader", Err: err}
	}
	found := make([]string, len(hosts))
	for i, h := range hosts {
		found[i] = net.JoinHostPort(h, port)
	}
	return found, nil
}

// HeaderLeader is the header in which /readyz of a process that does not lead names the leader.
const HeaderLeader = "Plimsoll-Leader"

// errNoLeader says that processes answer and none of them leads.
var errNoLeader = errors.New("none of the addresses leads now")

// sought is the answer of one address.
type sought struct {
	address string
	reached reached
	err     error
}

// reached is a connection to a process that has answered.
type reached struct {
	conn   *transport.ConnClient
	ready  bool   // it leads, or follows a leader and serves others
	leader string // the address of the leader that it names; may be empty
	said   string // its answer, if it is not ready
}

// ReachLeader returns a connection to the leader, which the caller cuts. It makes no copy: of the
// configuration it uses Leader, Finder, Tokens and Dial.
func ReachLeader(ctx context.Context, config FollowerConfig) (*transport.ConnClient, error) {
	f, err := NewFollower(config)
	if err != nil {
		return nil, err
	}
	return f.reach(ctx)
}

// reach returns a connection on which the leader has answered. With a single address any
// process that answers there will do: the refusal of one that does not lead gives the reason.
func (f *Follower) reach(ctx context.Context) (*transport.ConnClient, error) {
	places, err := f.finder.Find(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was looked up
	}
	if len(places) > maxPlaces {
		places = places[:maxPlaces]
	}
	if len(places) == 1 {
		only, err := f.reachAt(ctx, places[0])
		if err != nil || only.ready || only.leader == "" || only.leader == places[0] {
			return only.conn, err
		}
		if named, err := f.reachAt(ctx, only.leader); err == nil {
			only.conn.Cut()
			return named.conn, nil
		}
		return only.conn, nil
	}
	found, named, err := f.seek(ctx, places)
	if err == nil || named == "" || slices.Contains(places, named) {
		return found, err
	}
	at, namedErr := f.reachAt(ctx, named)
	if namedErr != nil {
		return nil, errors.Join(err, namedErr)
	}
	return at.conn, nil
}

// seek asks all places at once and returns the connection to the first that leads. If none does it
// returns the address that one of them names. A place that is silent holds up the others for
// linkGrace.
func (f *Follower) seek(ctx context.Context, places []string) (conn *transport.ConnClient, named string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan sought, len(places)) // each place sends one
	for _, address := range places {
		go func() {
			at, err := f.reachAt(ctx, address)
			answers <- sought{address, at, err}
		}()
	}
	var late <-chan time.Time
	var causes []error
	left := len(places)
	defer func() {
		cancel()
		for ; left > 0; left-- { // each ends with ctx
			if a := <-answers; a.err == nil {
				a.reached.conn.Cut()
			}
		}
	}()
	for left > 0 {
		select {
		case a := <-answers:
			left--
			if a.err == nil && a.reached.ready {
				return a.reached.conn, "", nil
			}
			if a.err == nil {
				a.reached.conn.Cut()
				named = a.reached.leader
				a.err = errors.New(a.reached.said)
			}
			causes = append(causes, fmt.Errorf("%s: %w", a.address, a.err))
			if late == nil {
				late = time.After(linkGrace)
			}
		case <-late:
			return nil, named, notFound(append(causes, errors.New("the others did not answer")))
		}
	}
	return nil, named, notFound(causes)
}

func notFound(causes []error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: "find the leader", Err: errors.Join(append(causes, errNoLeader)...),
	}
}
