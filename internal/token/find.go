package token

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
)

// Finder finds tokens of one kind for servers. The zero Finder finds none.
type Finder struct {
	Kind Kind
	File string // the file to read; empty: the entries of servers on this machine are searched
	// PerServer sends each server a form of the token that is good for it alone, see Token.For.
	PerServer bool
}

// For returns the source of the token for a server; nil if there is none. The server is an address
// as package transport takes it.
func (f Finder) For(server string) *Source {
	switch {
	case f.Kind == 0:
		return nil
	case f.File != "":
		return f.source(server, &Source{about: "the token in the file " + f.File, read: func() (Token, entry, error) {
			t, err := Load(f.Kind, f.File)
			return t, entry{}, err
		}})
	}
	servers := entered(server)
	if len(servers) == 0 {
		return nil
	}
	s := &Source{about: "the token that the server has entered for this user"}
	s.read = func() (Token, entry, error) {
		t, e, why := lookup(f.Kind, servers)
		if why != "" {
			why = "no token: " + why
		}
		s.none = why
		return t, e, nil
	}
	return f.source(server, s)
}

func (f Finder) source(server string, s *Source) *Source {
	if read := s.read; f.PerServer {
		s.read = func() (Token, entry, error) {
			t, e, err := read()
			return t.For(server), e, err
		}
	}
	return s
}

// Fixed returns the source of a token that is known already. about names its origin.
func Fixed(t Token, about string) *Source {
	return &Source{about: about, read: func() (Token, entry, error) { return t, entry{}, nil }}
}

// entered returns the addresses under which the token of a server may have been entered. The name
// localhost stands for two addresses, so a caller has to use the one that Source.Get returns.
func entered(server string) []netip.AddrPort {
	host, text, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(server, "http://"), "/"))
	if err != nil {
		return nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || strings.HasPrefix(server, "unix:") {
		return nil
	}
	if host == "localhost" || host == "" {
		return []netip.AddrPort{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)),
			netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port)),
		}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Unmap().IsLoopback() {
		return nil
	}
	return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(port))}
}

// Source is the origin of a caller's token for one server. It is safe for concurrent use.
type Source struct {
	about string
	read  func() (Token, entry, error)

	mu    sync.Mutex
	token Token // as it was last read; zero: not yet read, or refused
	entry entry
	none  string // why the search found no token
}

// Get returns the token and the only address that it may be sent to. The zero token means that the
// server has entered none; an empty address stands for the server's own.
func (s *Source) Get() (t Token, at string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.token.Is() {
		if s.token, s.entry, err = s.read(); err != nil {
			return Token{}, "", err
		}
	}
	return s.token, s.entry.Server, nil
}

// Check is called after a connection to the server has been made and before a request is sent. It
// fails if the token is no longer entered: another process may have the server's address now.
func (s *Source) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entry.Server == "" {
		return nil
	}
	if _, now, err := s.read(); err == nil && now == s.entry {
		return nil
	}
	s.token, s.entry = Token{}, entry{}
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the server whose token was found has ended; try again")
}

// Refused is called when the server has refused a token, zero if none was sent. It reads the token
// again, and reports whether that is another one now, which may be sent.
func (s *Source) Refused(sent Token) (renewed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.entry = Token{}, entry{}
	now, e, err := s.read()
	if err != nil || !now.Is() || sent.Is() && *now.text == *sent.text {
		return false
	}
	s.token, s.entry = now, e
	return true
}

// String describes the origin of the token, or why there is none.
func (s *Source) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.none != "" {
		return s.none
	}
	return s.about
}

// ServerFile is the file in which the server itself keeps the token. If the server names none, it
// is the file that the token was read from.
func (s *Source) ServerFile() (string, error) {
	t, _, err := s.Get()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !t.Is():
		return "", plimsoll.Errorf(plimsoll.CodeUnauthenticated, "%s", s.none)
	case s.entry.File != "":
		return s.entry.File, nil
	case t.file == "":
		return "", plimsoll.Errorf(plimsoll.CodeNotFound, "%s is in no file", fmt.Sprint(s.about))
	}
	return t.file, nil
}
