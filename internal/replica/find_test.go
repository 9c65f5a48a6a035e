package replica

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// names is a server of DNS that knows some names.
type names struct {
	mu    sync.Mutex
	known map[string][]netip.Addr // of version 4
}

func (n *names) set(name string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = nil
	for _, a := range addresses {
		n.known[name] = append(n.known[name], netip.MustParseAddr(a))
	}
}

// serveNames serves names by UDP, and returns a resolver that asks it.
func serveNames(t *testing.T) (*names, *net.Resolver) {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{known: map[string][]netip.Addr{}}
	var served sync.WaitGroup
	served.Go(func() {
		question := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(n.answer(question[:size]), from) // the resolver asks again
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		served.Wait()
	})
	return n, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answer returns the answer to a message with one question, in the form of RFC 1035.
func (n *names) answer(asked []byte) []byte {
	const header, recursive, noSuchName, typeA, classIN = 12, 0x8180, 3, 1, 1
	var labels []string
	at := header
	for asked[at] > 0 {
		labels = append(labels, string(asked[at+1:at+1+int(asked[at])]))
		at += 1 + int(asked[at])
	}
	kind := binary.BigEndian.Uint16(asked[at+1:])
	question := asked[header : at+5]
	n.mu.Lock()
	addresses, known := n.known[strings.Join(labels, ".")]
	n.mu.Unlock()
	flags := uint16(recursive)
	if !known {
		flags |= noSuchName
	}
	if kind != typeA {
		addresses = nil
	}
	b := slices.Clone(asked[:2])
	for _, field := range []uint16{flags, 1, uint16(len(addresses)), 0, 0} {
		b = binary.BigEndian.AppendUint16(b, field)
	}
	b = append(b, question...)
	for _, a := range addresses {
		b = append(b, 0xc0, header) // the name of the question
		b = binary.BigEndian.AppendUint16(b, typeA)
		b = binary.BigEndian.AppendUint16(b, classIN)
		b = binary.BigEndian.AppendUint32(b, 0) // seconds for which it may be kept
		b = binary.BigEndian.AppendUint16(b, 4)
		b = append(b, a.AsSlice()...)
	}
	return b
}

// A name stands for all of its addresses, and is looked up at each Find.
func TestNamesOfTheLeaderAreLookedUp(t *testing.T) {
	n, resolver := serveNames(t)
	find := func(text string) ([]string, error) {
		t.Helper()
		f, err := ParseFinder(text)
		if err != nil {
			t.Fatal(err)
		}
		list := f.(addressList)
		list.resolver = resolver
		found, err := list.Find(t.Context())
		slices.Sort(found)
		return found, err
	}
	n.set("leader.internal", "10.0.0.1", "10.0.0.2")
	for _, c := range []struct {
		text, want string
	}{
		{"dns:leader.internal:9081", "10.0.0.1:9081 10.0.0.2:9081"},
		{"dns:leader.internal:9081, 10.0.0.9:1", "10.0.0.1:9081 10.0.0.2:9081 10.0.0.9:1"},
		{"10.0.0.9:1,dns:elsewhere.internal:9081", "10.0.0.9:1"}, // the known ones are enough
		{"dns:elsewhere.internal:9081,dns:leader.internal:7", "10.0.0.1:7 10.0.0.2:7"},
		{"unix:/run/leader.sock,10.0.0.9:1", "10.0.0.9:1 unix:/run/leader.sock"},
	} {
		if found, err := find(c.text); strings.Join(found, " ") != c.want || err != nil {
			t.Errorf("%s: got %v, %v, want %s", c.text, found, err, c.want)
		}
	}
	if found, err := find("dns:elsewhere.internal:9081"); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a name that nobody knows: %v, %v", found, err)
	}
	n.set("leader.internal", "10.0.0.3")
	if found, err := find("dns:leader.internal:9081"); strings.Join(found, " ") != "10.0.0.3:9081" || err != nil {
		t.Errorf("after the leader has moved: %v, %v", found, err)
	}
	n.set("leader.internal")
	if found, err := find("dns:leader.internal:9081"); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a name without addresses: %v, %v", found, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := (addressList{[]string{"dns:leader.internal:1"}, resolver}).Find(ctx); err == nil {
		t.Errorf("after the end of the context: %v", found)
	}
}

// A text that lists no addresses is refused when it is read.
func TestPlacesOfTheLeaderAreChecked(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("10.0.0.1:9081,", maxPlaces), ",")
	if _, err := ParseFinder(many); err != nil {
		t.Errorf("%d addresses: %v", maxPlaces, err)
	}
	for _, text := range []string{
		"", "10.0.0.1", "10.0.0.1:9081,", "dns:", "dns:leader.internal", "dns:unix:/run/leader.sock", "unix:",
		many + ",10.0.0.1:9081",
	} {
		if f, err := ParseFinder(text); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%q: %v, %v", text, f, err)
		}
	}
}
