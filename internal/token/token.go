// Package token makes, keeps and finds the tokens by which a listener of TCP knows its callers.
//
// There are five kinds, each for one kind of caller: see Kind. At its first start a role makes the
// tokens of its own listener, in files that only its user can read (Make). Its callers read the
// file (Load), or find the token without a path: a listener that this machine reaches by its
// loopback enters its tokens, by its address, below the home directory of its user (Enter). A
// Finder finds a token in both ways. A Source keeps a token that was found, and reads it anew after
// a refusal.
//
//	user, err := token.Make(token.User, "/var/lib/plimsoll/user.token") // a server
//	source := token.Finder{Kind: token.User}.For("127.0.0.1:9080")      // a local caller
//
// Guarantees:
//
//   - A token file exists whole or not at all, also after a crash. Two processes that make the same
//     file at the same time get one token.
//   - A token is found only for the server that entered it, and only while that process lives:
//     another process may listen on its port afterwards.
//   - No way of printing a Token shows its secret.
//
// The package owns no goroutine. It does not decide what a caller may do: package transport does.
package token

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Kind is the purpose of a token: the callers that hold it and the listener that checks it.
type Kind uint8

// The kinds. Each has a flag and a file of the same name at both ends.
const (
	User      Kind = iota + 1 // of users, for gateways
	Agent                     // of agents, for gateways
	Gateway                   // of gateways, for coordinators
	Log                       // of gateways, for the ports of agents
	Evaluator                 // of callers that place tasks, for evaluators

	numKinds
)

var kinds = [numKinds]struct{ word, caller string }{
	User: {"user", "--token-file, PLIMSOLL_TOKEN_FILE or PLIMSOLL_TOKEN"},

	Agent:   {"agent", "--agent-token-file or PLIMSOLL_AGENT_TOKEN_FILE"},
	Gateway: {"gateway", "--gateway-token-file or PLIMSOLL_GATEWAY_TOKEN_FILE"},
	Log:     {"log", "--log-token-file or PLIMSOLL_LOG_TOKEN_FILE"},

	Evaluator: {"evaluator", "--evaluator-token-file or PLIMSOLL_EVALUATOR_TOKEN_FILE"},
}

// String returns the kind's word.
func (k Kind) String() string { return kinds[k].word }

// GivenBy names the flags and variables by which a caller is given a token of this kind.
func (k Kind) GivenBy() string { return kinds[k].caller }

// FileName is the name of the file that a role makes in its directory.
func (k Kind) FileName() string { return k.String() + ".token" }

func (k Kind) prefix() string { return "plimsoll_" + k.String() + "_" }

const secretBytes = 32

// Token is a secret of one kind. The zero Token holds no secret.
type Token struct {
	kind Kind
	file string  // file in which the token was made or read; may be empty
	text *string // a pointer, because printing a struct that holds a Token would show a string
}

// New makes a token that is in no file.
func New(kind Kind) Token {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails
	return newToken(kind, secret, "")
}

func newToken(kind Kind, secret []byte, file string) Token {
	text := kind.prefix() + base64.RawURLEncoding.EncodeToString(secret)
	return Token{kind, file, &text}
}

// Parse reads a token. Its errors do not repeat the text.
func Parse(text string) (Token, error) {
	text = strings.TrimSpace(text)
	for kind := User; kind < numKinds; kind++ {
		rest, ok := strings.CutPrefix(text, kind.prefix())
		if !ok {
			continue
		}
		if secret, err := base64.RawURLEncoding.DecodeString(rest); err == nil && len(secret) == secretBytes {
			return newToken(kind, secret, ""), nil
		}
	}
	return Token{}, plimsoll.Errorf(plimsoll.CodeInvalid,
		"this is not a token; one begins with plimsoll_user_, plimsoll_agent_, plimsoll_gateway_, "+
			"plimsoll_log_ or plimsoll_evaluator_, and 43 characters follow")
}

// Is reports whether t holds a secret.
func (t Token) Is() bool { return t.text != nil }

// Kind returns the kind of the token.
func (t Token) Kind() Kind { return t.kind }

// File is the file in which the token was made or read; empty if there is none.
func (t Token) File() string { return t.file }

// Header is the Authorization header of a request with the token.
func (t Token) Header() string { return "Bearer " + *t.text }

// Matches reports whether t is the token that a caller sent. Its duration does not depend on how
// much of the text is right.
func (t Token) Matches(sent string) bool {
	var a, b [64]byte
	n, m := copy(a[:], *t.text), copy(b[:], sent)
	return n == m && len(sent) == m && subtle.ConstantTimeCompare(a[:n], b[:m]) == 1
}

// For returns a form of the token that only one server accepts. A server that gets it cannot use it
// at another server with the same token.
func (t Token) For(server string) Token {
	if !t.Is() {
		return t
	}
	mac := hmac.New(sha256.New, []byte(*t.text))
	mac.Write([]byte("plimsoll token for " + server))
	return newToken(t.kind, mac.Sum(nil), t.file)
}

// Format implements fmt.Formatter: it prints the kind alone.
func (t Token) Format(s fmt.State, _ rune) {
	if !t.Is() {
		_, _ = fmt.Fprint(s, "no token") // as fmt itself does
		return
	}
	_, _ = fmt.Fprintf(s, "%s %s token", article(t.kind), t.kind)
}

func article(k Kind) string {
	if k == Agent || k == Evaluator {
		return "an"
	}
	return "a"
}

// MarshalText implements encoding.TextMarshaler, also for logs: it shows the kind alone.
func (t Token) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(t)), nil }

// Guess names the kind of token that a text has the form of, such as "an agent token"; empty if it
// has the form of none. It does not check the secret.
func Guess(text string) string {
	if t, err := Parse(text); err == nil {
		return fmt.Sprint(t)
	}
	return ""
}
