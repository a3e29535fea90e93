package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/storage/sysfs"
)

// packetFilter lists the kernel's packet filter: tables, chains and rules of nf_tables, which iptables uses, too, and
// the names of legacy iptables' tables. Rules are lists of the kernel's expressions. A kernel without a packet filter
// is not an error, but is noted in the member.
func packetFilter(ctx context.Context, sys sysfs.Root) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range []string{"ip_tables_names", "ip6_tables_names"} {
		tables, err := os.ReadFile(sys.Proc("net", name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(&out, "legacy tables (%s): %v\n", name, err)
		} else if len(bytes.TrimSpace(tables)) > 0 {
			fmt.Fprintf(&out, "legacy tables (%s): %s\n", name, strings.Join(strings.Fields(string(tables)), " "))
		}
	}
	err := goroutine.Catch(func() error { return writeRules(ctx, &out) })
	switch {
	case err == nil:
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		fmt.Fprintf(&out, "no rules: the kernel has no nf_tables (%v)\n", err)
	default:
		return nil, fmt.Errorf("list rules of nf_tables: %w", err)
	}
	if out.Len() == 0 {
		out.WriteString("no rules\n")
	}
	return out.Bytes(), nil
}

// writeRules lists the tables of nf_tables in the network namespace of the calling thread.
func writeRules(ctx context.Context, out *bytes.Buffer) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return err
	}
	chains, err := conn.ListChains()
	if err != nil {
		return err
	}
	for _, table := range tables {
		fmt.Fprintf(out, "table %s %s\n", family(table.Family), table.Name)
		for _, chain := range chains {
			if chain.Table.Name != table.Name || chain.Table.Family != table.Family {
				continue
			}
			fmt.Fprintf(out, "  chain %s%s\n", chain.Name, base(chain))
			rules, err := conn.GetRules(table, chain)
			if err != nil {
				return fmt.Errorf("table %s, chain %s: %w", table.Name, chain.Name, err)
			}
			for _, rule := range rules {
				fmt.Fprintf(out, "    rule %d: %s\n", rule.Handle, expressions(rule.Exprs))
			}
			if err := ctx.Err(); err != nil || out.Len() > maxMemberBytes {
				return err
			}
		}
	}
	return nil
}

func family(f nftables.TableFamily) string {
	names := map[nftables.TableFamily]string{
		nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
		nftables.TableFamilyARP: "arp", nftables.TableFamilyNetdev: "netdev", nftables.TableFamilyBridge: "bridge",
	}
	if name, known := names[f]; known {
		return name
	}
	return fmt.Sprintf("family %d", f)
}

// base describes the hook of a base chain, "" for other chains.
func base(c *nftables.Chain) string {
	if c.Hooknum == nil || c.Priority == nil {
		return ""
	}
	hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
	hook := fmt.Sprint(*c.Hooknum)
	at := int(*c.Hooknum)
	if at < len(hooks) && c.Table.Family != nftables.TableFamilyNetdev && c.Table.Family != nftables.TableFamilyARP {
		hook = hooks[at]
	}
	policy := "accept"
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		policy = "drop"
	}
	return fmt.Sprintf(" (type %s, hook %s, priority %d, policy %s)", c.Type, hook, *c.Priority, policy)
}

// expressions returns a rule's expressions as the library decodes them, bytes in hexadecimal.
func expressions(all []expr.Any) string {
	verdicts := map[expr.VerdictKind]string{
		expr.VerdictAccept: "accept", expr.VerdictDrop: "drop", expr.VerdictReturn: "return", expr.VerdictJump: "jump",
		expr.VerdictGoto: "goto",
	}
	texts := make([]string, len(all))
	for i, e := range all {
		switch e := e.(type) {
		case *expr.Verdict:
			texts[i] = strings.TrimSpace(verdicts[e.Kind] + " " + e.Chain)
			if verdicts[e.Kind] == "" {
				texts[i] = fmt.Sprintf("verdict %d", e.Kind)
			}
		case *expr.Cmp:
			texts[i] = fmt.Sprintf("cmp {Op:%d Register:%d Data:%x}", e.Op, e.Register, e.Data)
		case *expr.Counter:
			texts[i] = fmt.Sprintf("counter packets %d bytes %d", e.Packets, e.Bytes)
		default:
			kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr."))
			texts[i] = kind + " " + strings.TrimPrefix(fmt.Sprintf("%+v", e), "&")
		}
	}
	return strings.Join(texts, "; ")
}
