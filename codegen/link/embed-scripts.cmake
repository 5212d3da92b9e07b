# cmake -D OUTPUT=HEADER -D FILES=A.sh;B.sh;... -P embed-scripts.cmake: a header with the text of each as template_A,
# ...
set(header "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
  string(APPEND header "static const char template_${name}[] =\n    \"${text}\";\n")
endforeach()
file(WRITE ${OUTPUT} "${header}")
