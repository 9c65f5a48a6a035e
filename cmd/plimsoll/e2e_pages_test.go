package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestPagesWorkAsTheyStand runs the blocks of every page from top to bottom, and compares the
// output with the samples. Each page has a directory and a home of its own.
func TestPagesWorkAsTheyStand(t *testing.T) {
	for _, p := range readPages(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			newPageRun(t, p.name).run(p)
		})
	}
}

// TestFirstStepsOfTheREADME are without a word of tokens.
func TestFirstStepsOfTheREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, ok := strings.Cut(string(readme), "## First steps")
	steps, _, ends := strings.Cut(steps, "\n## ")
	if !ok || !ends || !strings.Contains(steps, "plimsoll dev") || strings.Contains(strings.ToLower(steps), "token") {
		t.Errorf("the first steps are:\n%s", steps)
	}
}

// pageRun is a page that is being run.
type pageRun struct {
	t    *testing.T
	site *site
	name string
	// addresses are those that stand in the page, with those that they are in this run.
	addresses map[string]string
	terminals map[string]*daemon // by the name before the prompt
	code      int                // exit code of the last command
}

// The addresses that roles have by themselves.
const (
	pageGateway     = "127.0.0.1:9080"
	pageCoordinator = "127.0.0.1:9081"
	pageEvaluator   = "127.0.0.1:9083"
	pageHistorian   = "127.0.0.1:9086"
	pageData        = "/tmp/plimsoll"
)

var (
	pageAddress = regexp.MustCompile(`127\.0\.0\.1:90\d\d`)
	// pageRole is a command that goes on until it is stopped.
	pageRole = regexp.MustCompile(`^(?:bin/)?plimsoll (dev|coordinator|gateway|agent|evaluator|historian)\b`)
	// pageReader is a command that changes nothing.
	pageReader = regexp.MustCompile(`^(?:curl|(?:bin/)?plimsoll (?:events|explain|place|task|queue|history|usage|at|` +
		`job (?:list|get|logs)|node (?:list|show|capacity|top)|policy (?:list|get)|qos|config (?:check|print|chain)))\b`)
)

// newPageRun makes a directory that looks like that of the source after make build.
func newPageRun(t *testing.T, name string) *pageRun {
	t.Helper()
	s := newSite(t)
	r := &pageRun{t: t, site: s, name: name, addresses: map[string]string{}, terminals: map[string]*daemon{}}
	program, err := exec.LookPath("plimsoll")
	if err != nil {
		t.Fatal(err)
	}
	targets, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"work/bin", "home", "tools"} {
		err = errors.Join(err, os.MkdirAll(s.path(dir), 0o755))
	}
	err = errors.Join(
		err,
		os.Symlink(program, s.path("work/bin/plimsoll")),
		os.CopyFS(s.path("work/examples"), os.DirFS(examplesDir(t))),
		// make says whether the target exists, and builds nothing.
		os.WriteFile(s.path("work/Makefile"), targets, 0o600),
		os.WriteFile(s.path("tools/make"), []byte("#!/bin/sh\nexec grep -q \"^$1:\" Makefile\n"), 0o755),
		os.WriteFile(s.path("state"), fmt.Appendf(nil, "cd %s\n", s.path("work")), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *pageRun) run(p docPage) {
	for _, b := range p.blocks {
		if r.t.Failed() {
			return // what follows depends on it
		}
		switch {
		case b.notRun != "":
		case b.saveAs != "":
			r.save(b)
		case b.language == "console":
			commands, err := b.commands()
			if err != nil {
				r.t.Fatalf("%s:%d: %v", p.name, b.line, err)
			}
			for i, c := range commands {
				r.command(c, i+1 < len(commands) && commands[i+1].text == "echo $?")
			}
		}
	}
}

// save writes the file that a block is saved as.
func (r *pageRun) save(b pageBlock) {
	if !filepath.IsLocal(b.saveAs) {
		r.t.Fatalf("%s:%d: %s does not lie in the directory of the page", r.name, b.line, b.saveAs)
	}
	file := r.site.path("work", b.saveAs)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err = errors.Join(
		err, os.WriteFile(file, []byte(r.inRun(strings.Join(b.lines, "\n")+"\n")), 0o644),
	); err != nil {
		r.t.Fatal(err)
	}
}

// inRun puts the directory and the addresses of this run for those that stand in the page.
func (r *pageRun) inRun(text string) string {
	text = pageAddress.ReplaceAllStringFunc(text, r.address)
	return strings.ReplaceAll(text, pageData, r.site.data())
}

// inPage is the opposite of inRun.
func (r *pageRun) inPage(text string) string {
	for inPage, inRun := range r.addresses {
		text = strings.ReplaceAll(text, inRun, inPage)
	}
	return strings.ReplaceAll(text, r.site.data(), pageData)
}

func (r *pageRun) address(inPage string) string {
	if r.addresses[inPage] == "" {
		r.addresses[inPage] = strings.Replace(freePorts(r.t, 1)[0], "localhost", "127.0.0.1", 1)
	}
	return r.addresses[inPage]
}

// environment is that of a new terminal. The addresses that a command does not name are this run's.
func (r *pageRun) environment(role string) []string {
	env := append(environment(),
		"HOME="+r.site.path("home"), "PATH="+r.site.path("tools")+":"+os.Getenv("PATH"),
		"PLIMSOLL_SERVER=http://"+r.address(pageGateway), "PLIMSOLL_GATEWAYS="+r.address(pageGateway),
		"PLIMSOLL_LEADER="+r.address(pageCoordinator))
	switch role {
	case "dev", "gateway":
		env = append(env, "PLIMSOLL_LISTEN="+r.address(pageGateway))
	case "coordinator":
		env = append(env, "PLIMSOLL_LISTEN="+r.address(pageCoordinator))
	case "evaluator":
		env = append(env, "PLIMSOLL_LISTEN="+r.address(pageEvaluator))
	case "historian":
		env = append(env, "PLIMSOLL_LISTEN="+r.address(pageHistorian))
	}
	return env
}

// command runs a command. One whose exit code is shown next may fail.
func (r *pageRun) command(c pageCommand, mayFail bool) {
	r.t.Helper()
	role := pageRole.FindStringSubmatch(c.text)
	switch {
	case c.text == "^C":
		r.interrupt(c)
	case role != nil:
		r.start(c, role[1])
	case c.terminal != "":
		r.t.Fatalf("%s:%d: a prompt with a name is for a role and its ^C", r.name, c.line)
	case pageReader.MatchString(c.text):
		eventually(r.t, fmt.Sprintf("%s:%d: %s", r.name, c.line, c.text), func() error { return r.once(c, mayFail) })
	default:
		if err := r.once(c, mayFail); err != nil {
			r.t.Fatalf("%s:%d: %s: %v", r.name, c.line, c.text, err)
		}
	}
}

// start starts a role in its terminal, and waits until it has said all that the page shows.
func (r *pageRun) start(c pageCommand, role string) {
	r.t.Helper()
	if c.terminal == "" {
		r.t.Fatalf("%s:%d: give the terminal of the role a name before the prompt, such as %s$", r.name, c.line, role)
	}
	cmd := exec.Command("bash", "-c", ". "+r.site.path("state")+"\nexec "+r.inRun(c.text))
	cmd.Env = r.environment(role)
	d := startCommand(r.t, cmd)
	r.terminals[c.terminal] = d
	r.says(c, d)
	if role == "dev" || role == "agent" {
		ready := pageCommand{text: "plimsoll node list", output: []string{"...", "... ready ...", "..."}}
		eventually(r.t, "wait for a node", func() error { return r.once(ready, false) })
	}
}

// interrupt ends the role of a terminal as Ctrl-C does.
func (r *pageRun) interrupt(c pageCommand) {
	r.t.Helper()
	d := r.terminals[c.terminal]
	if d == nil {
		r.t.Fatalf("%s:%d: nothing runs in terminal %q", r.name, c.line, c.terminal)
	}
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	if code := d.exit(); code != 0 {
		r.t.Fatalf("%s:%d: exit code %d, %s", r.name, c.line, code, d.stderr())
	}
	r.says(c, d)
}

// says waits until a role has said each line that the page shows.
func (r *pageRun) says(c pageCommand, d *daemon) {
	r.t.Helper()
	for _, line := range c.output {
		re := regexp.MustCompile(sampleLine(line))
		eventually(r.t, fmt.Sprintf("%s:%d: %s", r.name, c.line, c.text), func() error {
			said := leaveOut(r.inPage(d.stderr()))
			if !re.MatchString(said) {
				return fmt.Errorf("it does not say %q, but:\n%s", line, said)
			}
			return nil
		})
	}
}

// once runs a command in a terminal that knows the variables and the directory of the command
// before.
func (r *pageRun) once(c pageCommand, mayFail bool) error {
	most := patience
	if strings.Contains(c.text, " --wait") {
		most = 5 * patience // it takes as long as its job, which may have thousands of tasks
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	state := r.site.path("state")
	script := fmt.Sprintf(". %[1]s\n(exit %[2]d)\n%[3]s\ncode=$?\n"+
		"{ export -p; printf 'cd %%q\\n' \"$PWD\"; } >%[1]s\nexit $code\n", state, r.code, r.inRun(c.text))
	var printed bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = r.environment(""), r.site.dir, &printed, &printed
	if err := cmd.Run(); cmd.ProcessState == nil {
		return err
	}
	code := cmd.ProcessState.ExitCode()
	text := r.inPage(printed.String())
	if code != 0 && !mayFail {
		return fmt.Errorf("exit code %d, %s", code, text)
	}
	if len(c.output) > 0 && !matchSample(c.output, text) {
		return fmt.Errorf("the page shows\n%s\nit printed\n%s", strings.Join(c.output, "\n"), text)
	}
	r.code = code
	return nil
}
