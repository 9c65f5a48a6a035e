package nodekey_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
)

func newKey(t testing.TB, seed byte) *nodekey.Key {
	t.Helper()
	key, err := nodekey.New(bytes.Repeat([]byte{seed}, nodekey.SeedSize))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func nodeOf(key *nodekey.Key) plimsoll.Node {
	return plimsoll.Node{
		ID: "n1", Address: "10.0.0.1:9081", Incarnation: 7, Key: key.Public(), Session: nodekey.Hash(key.Session()),
	}
}

// A signature cannot be used for another node, incarnation, address, session or key.
func TestASignatureIsGoodForOneRegistrationAlone(t *testing.T) {
	key := newKey(t, 1)
	node := nodeOf(key)
	signature := key.SignRegistration(&node)
	if err := nodekey.CheckRegistration(&node, signature); err != nil {
		t.Fatal(err)
	}
	if err := node.Validate(); err != nil {
		t.Errorf("a node with a key: %v", err)
	}
	for name, change := range map[string]func(*plimsoll.Node){
		"id":          func(n *plimsoll.Node) { n.ID = "n2" },
		"address":     func(n *plimsoll.Node) { n.Address = "unix:/var/run/docker.sock" },
		"incarnation": func(n *plimsoll.Node) { n.Incarnation++ },
		"session":     func(n *plimsoll.Node) { n.Session = nodekey.Hash("mine") },
		"key":         func(n *plimsoll.Node) { n.Key = newKey(t, 2).Public() },
		"no key":      func(n *plimsoll.Node) { n.Key = "" },
		"short key":   func(n *plimsoll.Node) { n.Key = "AAAA" },
		"boundary":    func(n *plimsoll.Node) { n.ID, n.Address = "n110", ".0.0.1:9081" },
	} {
		changed := nodeOf(key)
		change(&changed)
		if err := nodekey.CheckRegistration(&changed, signature); plimsoll.CodeOf(err) != plimsoll.CodeDenied {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if err := nodekey.CheckRegistration(&node, nil); plimsoll.CodeOf(err) != plimsoll.CodeDenied {
		t.Errorf("no signature: %v", err)
	}
}

func TestAnAnswerIsGoodForOneNonceAndNodeAlone(t *testing.T) {
	key, nonce := newKey(t, 1), nodekey.Random(nodekey.NonceSize)
	node := nodeOf(key)
	signature := key.Answer("n1", nonce)
	if !nodekey.CheckAnswer("n1", key.Public(), nonce, signature) {
		t.Error("the answer is refused")
	}
	if nodekey.CheckAnswer("n2", key.Public(), nonce, signature) ||
		nodekey.CheckAnswer("n1", newKey(t, 2).Public(), nonce, signature) ||
		nodekey.CheckAnswer("n1", key.Public(), nodekey.Random(nodekey.NonceSize), signature) ||
		nodekey.CheckAnswer("n1", key.Public(), nonce, key.SignRegistration(&node)) {
		t.Error("it is good for something else")
	}
}

func TestASessionProvesItself(t *testing.T) {
	key := newKey(t, 1)
	hash := nodekey.Hash(key.Session())
	if !nodekey.Proves(key.Session(), hash) {
		t.Error("it does not")
	}
	for _, other := range []string{"", newKey(t, 1).Session(), hash, strings.Repeat("A", 1<<16)} {
		if nodekey.Proves(other, hash) {
			t.Errorf("%.50q proves it too", other)
		}
	}
	if nodekey.Proves("", nodekey.Hash("")) {
		t.Error("nothing proves something")
	}
}

func TestAKeyOfAnotherSizeIsRefused(t *testing.T) {
	if _, err := nodekey.New([]byte("short")); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("error %v", err)
	}
}

// BenchmarkProves measures the cost of each heartbeat.
func BenchmarkProves(b *testing.B) {
	key := newKey(b, 1)
	hash := nodekey.Hash(key.Session())
	b.ReportAllocs()
	for b.Loop() {
		if !nodekey.Proves(key.Session(), hash) {
			b.Fatal("it does not")
		}
	}
}
