// Command site makes the site of the documentation: content for Hugo from the pages of docs, the site by Hugo, and a check of its links.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	hugo := flag.String("hugo", "hugo", "path of Hugo")
	base := flag.String("base-url", "https://tessera-gpu.github.io/tessera/", "URL under which the site is published")
	ref := flag.String("ref", "main", "branch or tag to which links to files that are no pages lead")
	out := flag.String("out", filepath.Join("dist", "site"), "folder of the site; it is replaced")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := build(ctx, *hugo, *base, *ref, *out); err != nil {
		log.Fatal(err)
	}
}

// build makes the site from the repository in the present folder.
func build(ctx context.Context, hugo, base, ref, out string) error {
	content, err := os.MkdirTemp("", "site-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(content)
	repository := os.DirFS(".")
	plan, err := readPlan(repository)
	if err != nil {
		return err
	}
	if err := plan.write(content, ref); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("remove the former site: %w", err)
	}
	if err := runHugo(ctx, hugo, base, content, out); err != nil {
		return err
	}
	checked, broken, err := checkLinks(os.DirFS(out), base)
	if err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("broken links:\n%s", strings.Join(broken, "\n"))
	}
	fmt.Printf("%d pages in %s, %d links checked\n%s\n", len(plan.pages), out, checked, plan.blocks())
	return nil
}

// runHugo runs Hugo on its configuration in docs/site. Hugo downloads the theme from Go's module proxy.
func runHugo(ctx context.Context, hugo, base, content, out string) error {
	for _, path := range []*string{&content, &out} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	proxy, err := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output()
	if err != nil {
		return fmt.Errorf("go env GOPROXY: %w", err)
	}
	cmd := exec.CommandContext(ctx, hugo, "--source", filepath.Join("docs", "site"), "--contentDir", content, "--destination", out, "--baseURL", base, "--noBuildLock")
	cmd.Env = append(os.Environ(), "HUGO_MODULE_PROXY="+strings.TrimSpace(string(proxy)), "HUGO_RESOURCEDIR="+filepath.Join(content, "resources"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run Hugo: %w", err)
	}
	return nil
}
