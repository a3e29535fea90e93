package main
import ("context";"ironroot/initramfs";"fmt";"os";"strings")
func main(){ g:=os.Args[2]; r,err:=initramfs.Build(context.Background(), initramfs.Options{Out:os.Args[1],ModuleGroups:strings.Split(g,","),Shell:len(os.Args)>3&&os.Args[3]=="shell",Progress:os.Stderr}); fmt.Println(r.InitramfsSize,r.Modules,err)}
