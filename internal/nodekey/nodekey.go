// Package nodekey lets an agent prove that a node is its own.
//
// A Key is an ed25519 key that never leaves its agent; the node's record holds the public part.
// With the key the agent signs its registrations (SignRegistration, CheckRegistration). It also
// answers a gateway that calls it (Answer, CheckAnswer). A signature costs some 50 µs, which is
// too much for every heartbeat. So each start of an agent also has a secret, the session. The
// record holds its hash, and the agent sends it in the Header of its calls (Proves).
//
//	key, err := nodekey.New(seed)
//	node.Key, node.Session = key.Public(), nodekey.Hash(key.Session())
//	signature := key.SignRegistration(&node)
//
// Each signed message begins with its purpose, so that no signature can be used for another
// purpose. Neither the record nor a signature lets a reader impersonate the agent. A reader of the
// traffic can copy the session, since nothing is encrypted. The copy is valid until the agent
// starts again.
//
// The package keeps no state and reads no files. Packages agent and gateway call it.
package nodekey

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"

	"github.com/plimsoll-dev/plimsoll"
)

// Header is the HTTP header in which an agent sends its session.
const Header = "Plimsoll-Node-Session"

// Sizes in bytes.
const (
	SeedSize    = ed25519.SeedSize
	NonceSize   = 32
	sessionSize = 32
)

// Purposes of signatures.
const (
	forRegistration = "plimsoll node registration 1"
	forAnswer       = "plimsoll node answer 1"
)

var encoding = base64.RawURLEncoding.Strict()

// Key is the key of a node's agent, with the session of its present start.
type Key struct {
	private ed25519.PrivateKey
	session string
}

// New returns the key that follows from a seed, with a new session.
func New(seed []byte) (*Key, error) {
	if len(seed) != SeedSize {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "a node's key has %d bytes, not %d", SeedSize, len(seed))
	}
	return &Key{private: ed25519.NewKeyFromSeed(seed), session: encoding.EncodeToString(Random(sessionSize))}, nil
}

// Random returns n random bytes.
func Random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // it never fails: without randomness the process ends
	return data
}

// Public returns the public key in the form of the node's record.
func (k *Key) Public() string {
	return encoding.EncodeToString(k.private.Public().(ed25519.PublicKey)) // the type that such a key has
}

// Session returns the secret to send in Header.
func (k *Key) Session() string { return k.session }

// Hash returns the hash of a session in the form of the node's record.
func Hash(session string) string {
	sum := sha256.Sum256([]byte(session))
	return encoding.EncodeToString(sum[:])
}

// Proves reports whether a session has the hash of a record. It takes the same time for every
// session.
func Proves(session, hash string) bool {
	if len(session) != encoding.EncodedLen(sessionSize) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(Hash(session)), []byte(hash)) == 1
}

// SignRegistration signs the registration of a node.
func (k *Key) SignRegistration(node *plimsoll.Node) []byte {
	return ed25519.Sign(k.private, registration(node))
}

// CheckRegistration reports whether a registration is signed with the node's own key.
func CheckRegistration(node *plimsoll.Node, signature []byte) error {
	if !verify(node.Key, registration(node), signature) {
		return plimsoll.Errorf(
			plimsoll.CodeDenied,
			"the registration of node %q is not signed with its key; it is not from the agent that has the key",
			node.ID,
		)
	}
	return nil
}

// Answer signs a gateway's nonce.
func (k *Key) Answer(node string, nonce []byte) []byte {
	return ed25519.Sign(k.private, answer(node, nonce))
}

// CheckAnswer reports whether the agent of a node has signed a nonce.
func CheckAnswer(node, public string, nonce, signature []byte) bool {
	return verify(public, answer(node, nonce), signature)
}

func verify(public string, message, signature []byte) bool {
	key, err := encoding.DecodeString(public)
	return err == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, signature)
}

func registration(node *plimsoll.Node) []byte {
	message := texts(forRegistration, node.ID, node.Address, node.Session)
	return binary.BigEndian.AppendUint64(message, node.Incarnation)
}

func answer(node string, nonce []byte) []byte { return texts(forAnswer, node, string(nonce)) }

// texts joins texts unambiguously: no other list of texts gives the same bytes.
func texts(all ...string) []byte {
	var message []byte
	for _, text := range all {
		message = binary.BigEndian.AppendUint32(message, uint32(len(text)))
		message = append(message, text...)
	}
	return message
}
